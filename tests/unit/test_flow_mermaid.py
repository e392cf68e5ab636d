"""The picture of a flow as text."""

from __future__ import annotations

from typing import Any

from perdure import Flow, task


@task
def fetch(order: Any) -> Any: ...


@task
def charge(order: Any) -> Any: ...


@task
def pack(order: Any) -> Any: ...


def test_shows_every_kind_and_what_leads_where():
    child = Flow("child").then(fetch).build()
    flow = (
        Flow("orders")
        .then(fetch)
        .fork(a=charge, b=Flow().map(pack, over="lines", concurrency=2))
        .join(fetch, name="decide")
        .route("kind", {"pay": None, "no": None})
        .delay("1h30m", after="route:pay")
        .loop(charge, until="done", max_iterations=3, name="poll")
        .wait_for_signal("approval", timeout="3d", on_timeout="late")
        .flow(child)
        .node("remind", charge, after="approval:late")
        .build()
    )

    assert flow.mermaid() == (
        "flowchart TD\n"
        '    n1["fetch"]\n'
        '    n2["charge"]\n'
        '    n3[/"pack<br/>for each of lines, 2 at once"/]\n'
        '    n4["decide<br/>calls fetch"]\n'
        '    n5{"route"}\n'
        '    n6("delay<br/>for 1h30m")\n'
        '    n7(["poll<br/>calls charge<br/>again until done, at most 3 times"])\n'
        '    n8{{"approval<br/>signal approval, within 3d"}}\n'
        f'    n9[["child<br/>flow {child.graph.text}"]]\n'
        '    n10["remind<br/>calls charge"]\n'
        "    n1 --> n2\n"
        "    n1 --> n3\n"
        '    n2 -->|"as a"| n4\n'
        '    n3 -->|"as b"| n4\n'
        "    n4 --> n5\n"
        '    n5 -->|"pay"| n6\n'
        "    n6 --> n7\n"
        "    n7 --> n8\n"
        "    n8 --> n9\n"
        '    n8 -.->|"late"| n10\n'
    )


def test_shows_who_decides_and_what_a_node_is():
    flow = (
        Flow("orders")
        .use("note", {"text": "x"}, name="begin")
        .use("note", {"text": "y"})
        .approve("Pay?")
        .approve("Really?", name="b", deciders=["lead"], deadline="3d", on_reject="refused")
        .approve("Sure?", name="c", deciders=["lead", "cfo"], answers=["approve", "later"])
        .approve("All?", name="d", deciders=["lead", "cfo"], policy="all")
        .approve("Two?", name="e", deciders=["board"], policy=2)
        .delay(until="{{ value.due_at }}")
        .then(pack, after="b:refused")
        .then(charge, after="c:later")
        .build()
    )

    assert flow.mermaid() == (
        "flowchart TD\n"
        '    n1["begin<br/>type note"]\n'
        '    n2["note"]\n'
        '    n3[/"approve<br/>Pay?<br/>decided by anyone"\\]\n'
        '    n4[/"b<br/>Really?<br/>decided by lead, within 3d"\\]\n'
        '    n5[/"c<br/>Sure?<br/>decided by one of lead, cfo"\\]\n'
        '    n6["charge"]\n'
        '    n7[/"d<br/>All?<br/>decided by all of lead, cfo"\\]\n'
        '    n8[/"e<br/>Two?<br/>decided by 2 of board"\\]\n'
        '    n9("delay<br/>until {{ value.due_at }}")\n'
        '    n10["pack"]\n'
        "    n1 --> n2\n"
        "    n2 --> n3\n"
        "    n3 --> n4\n"
        "    n4 --> n5\n"
        '    n4 -.->|"refused"| n10\n'
        '    n5 -->|"later"| n6\n'
        "    n5 --> n7\n"
        "    n7 --> n8\n"
        "    n8 --> n9\n"
    )


def test_takes_no_text_for_markup():
    flow = Flow("f").route("k", {'a"]|<b>\n#1;': fetch}).wait_for_signal('go "now"').build()

    assert 'n1 -->|"a#34;]#124;#60;b#62;#10;#35;1#59;"| n2' in flow.mermaid()
    assert 'n3{{"signal<br/>signal go #34;now#34;"}}' in flow.mermaid()


def test_does_not_trip_over_words_of_mermaid():
    ended = task(name="end")(lambda order: order)

    assert 'n1["end"]' in Flow("f").then(ended).build().mermaid()

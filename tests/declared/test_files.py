"""Flows in files: of either format, in any order, and with other files as their children."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import Flow, InvalidFlow, load_flow, run_flow
from tests.declared.tasks import TASKS, child, double, load


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def refused(file: Path) -> list[str]:
    with pytest.raises(InvalidFlow) as caught:
        load_flow(file, tasks=TASKS)
    return [str(error).replace(str(file.parent), "") for error in caught.value.errors]


def test_yaml_and_json_make_the_same_flow(tmp_path):
    built = Flow("f").then(load).then(double, inputs={"number": "load.output.id"}).build()
    yaml = write(tmp_path, "f.yaml", built.to_yaml())
    data = write(tmp_path, "f.json", json.dumps(built.to_dict(), indent="\t"))

    assert load_flow(yaml, tasks=TASKS).version == built.version
    assert load_flow(str(data), tasks=TASKS).version == built.version
    assert run_flow(load_flow(yaml, tasks=TASKS), 21) == 42


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_bytes(b"\xef\xbb\xbfflow: f\r\nnodes:\r\n  - {id: load, task: load}\r\n")

    assert load_flow(file, tasks=TASKS).name == "f"


class TestUnreadable:
    def test_files_are_named_with_the_reason(self, tmp_path):
        assert refused(tmp_path / "none.yaml") == [
            "/none.yaml: cannot be read: No such file or directory"
        ]
        assert refused(tmp_path / "\0") == ["/\0: cannot be read: embedded null byte"]
        (tmp_path / "folder.yaml").mkdir()
        assert refused(tmp_path / "folder.yaml") == ["/folder.yaml: cannot be read: Is a directory"]

    def test_bytes_are_refused(self, tmp_path):
        (tmp_path / "f.yaml").write_bytes(b"flow: \xff\xfe")

        assert refused(tmp_path / "f.yaml") == [
            "/f.yaml: is not UTF-8: invalid start byte at byte 6"
        ]

    def test_files_say_their_name_in_every_fault(self, tmp_path):
        file = write(tmp_path, "f.yaml", "flow: f\nnodes:\n  - {id: a, task: lod}\n")

        assert refused(file) == ["/f.yaml:3: node 'a': unknown task 'lod'; did you mean 'load'?"]


class TestChildren:
    def test_can_be_files_beside(self, tmp_path):
        write(tmp_path, "parts/child.yaml", child.to_yaml())
        parent = write(
            tmp_path,
            "parent.yaml",
            """
            flow: parent
            nodes:
              - {id: a, type: flow, config: {flow: parts/child.yaml}, next: b}
              - {id: b, type: loop, config: {flow: parts/child.yaml, until: {task: is_done}}}
            """,
        )
        python = (
            Flow("parent")
            .flow(child, name="a")
            .loop(child, until=TASKS_BY_NAME["is_done"], name="b")
        )

        found = load_flow(parent, tasks=TASKS)

        assert found.version == python.build().version
        assert run_flow(found, 3) == 12

    def test_are_found_beside_the_file_that_names_them(self, tmp_path):
        write(tmp_path, "a/b/inner.yaml", child.to_yaml())
        write(tmp_path, "a/mid.yml", nested("mid", "b/inner.yaml"))
        top = write(tmp_path, "top.yaml", nested("top", "a/mid.yml"))

        assert load_flow(top, tasks=TASKS).flows.keys() == {
            f"mid@{load_flow(tmp_path / 'a/mid.yml', tasks=TASKS).version}"
        }

    def test_cannot_run_each_other_in_a_circle(self, tmp_path):
        write(tmp_path, "b.yaml", nested("b", "a.yaml"))
        top = write(tmp_path, "a.yaml", nested("a", "b.yaml"))

        faults = refused(top)

        assert any("in a circle: a.yaml → b.yaml → a.yaml" in fault for fault in faults)
        assert faults[0].startswith("/a.yaml:1: node 'child'")

    def test_cannot_be_outside_of_the_folder(self, tmp_path):
        write(tmp_path, "secret.yaml", child.to_yaml())
        outside = write(tmp_path, "in/f.yaml", nested("f", "../secret.yaml"))
        absolute = write(tmp_path, "in/g.yaml", nested("g", str(tmp_path / "secret.yaml")))
        (tmp_path / "in/link.yaml").symlink_to(tmp_path / "secret.yaml")
        linked = write(tmp_path, "in/h.yaml", nested("h", "link.yaml"))

        for file in (outside, absolute, linked):
            [fault] = refused(file)
            assert "is outside of the folder of this flow" in fault

    def test_tell_their_own_faults(self, tmp_path):
        write(tmp_path, "inner.yaml", "flow: i\nnodes:\n  - {id: x, task: lod}\n")
        top = write(tmp_path, "top.yaml", nested("top", "inner.yaml"))

        assert refused(top) == [
            "/top.yaml:1: node 'child': flow 'i' cannot be built",
            "/inner.yaml:3: node 'x': unknown task 'lod'; did you mean 'load'?",
        ]


TASKS_BY_NAME = {task.name: task for task in TASKS}


def nested(name: str, file: str) -> str:
    return f"{{flow: {name}, nodes: [{{id: child, type: flow, config: {{flow: {file}}}}}]}}"

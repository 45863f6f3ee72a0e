"""The course as data: the table agrees with the files it names and with itself."""

import pytest

from ol import course


def test_every_file_test_folder_and_chapter_of_the_table_exists() -> None:
    """A module that names a file that is not there could not be started.

    KIND: unit.
    """
    for module in course.MODULES.values():
        assert all(course.reference(file).is_file() for file in module.files), module.id
        assert all(course.notebook(chapter).is_file() for chapter in module.chapters), module.id
        if module.files:
            assert list(course.tests_folder(module).glob("test_*.py")), module.id


def test_every_module_with_files_has_a_chapter_to_practise_in() -> None:
    """Chapter 00 promises that `ol start` copies the chapters of any module.

    KIND: property.
    """
    first = {one.id: one.chapters[:1] for one in course.MODULES.values() if one.files}
    assert all(first.values())
    assert first["M06.3"] == first["M07.1"] == ("01-replayable-randomness",), "one chapter for two small modules"


def test_modules_come_after_what_they_need() -> None:
    """The order of the table is the order of building, and needs never go round in a circle.

    KIND: property.
    """
    seen: set[str] = set()
    for module in course.MODULES.values():
        assert set(module.needs) <= seen, module.id
        assert {need.id for need in course.needed(module)} <= seen
        seen.add(module.id)


def test_a_file_imports_the_modules_that_the_table_says_it_needs() -> None:
    """A need that is missing in the table would show as an import error in the middle of a check.

    KIND: property.
    """
    owner = {course.dotted(file): module for module in course.MODULES.values() for file in module.files}
    for module in course.MODULES.values():
        known = {module.id, *(need.id for need in course.needed(module))}
        for file in module.files:
            text = course.reference(file).read_text(encoding="utf-8")
            used = {other.id for name, other in owner.items() if f"from {name} import" in text}
            assert used <= known, f"{module.id} imports from {sorted(used - known)}"


def test_a_module_is_found_in_any_case_and_a_wrong_one_gets_near_names() -> None:
    """A typing mistake should cost one look, not a search.

    KIND: boundary, smoke.
    """
    assert course.module("l8.6").id == "L8.6"
    with pytest.raises(ValueError, match=r"'L86'.*L8\.6"):
        course.module("L86")
    with pytest.raises(ValueError, match=r"L10\.8"):
        course.module("")


def test_folder_names_are_those_that_the_book_gives() -> None:
    """The chapters say python names and folders; a change here would break what they say.

    KIND: unit.
    """
    assert course.slug(course.module("L8.6")) == "l8-6-spec"
    assert course.slug(course.module("L10.8")) == "l10-8"
    assert course.dotted("tinyllm/infer/spec.py") == "tinyllm.infer.spec"
    assert len({course.slug(module) for module in course.MODULES.values()}) == len(course.MODULES)

"""From matplotlib's SVG document to a part of a page: unique ids, the page's colours and fonts, texts on hovering."""

import re
from xml.etree import ElementTree as ET

from strang.report.panels import Panel


def inline_svg(root: ET.Element, panel: Panel, name: str, titles: dict[str, list[str]]) -> str:
    """Drops what belongs to a file (sizes, fonts, styles that would reach the page), adds hover texts, and makes ids
    begin with `name`, so that many pictures fit in one page."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if "}" in key]:
            element.set(key.rpartition("}")[2], element.attrib.pop(key))
        _simplify(element)
        for child in [child for child in element if child.tag.rpartition("}")[2] in ("metadata", "style")]:
            element.remove(child)
    _add_hover_texts(root, titles)
    _rename_ids(root, name)
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag == "g" and not len(child)]:
            parent.remove(child)
    label = f"{panel.title}: {panel.y_label} against {panel.x_label}, for {', '.join(s.label for s in panel.series)}"
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update(
        {"xmlns": "http://www.w3.org/2000/svg", "class": "figure", "viewBox": box, "width": "100%", "role": "img",
         "aria-label": label, "fill": "currentColor", "stroke-linejoin": "round"}
    )  # fmt: skip
    root.text = root.tail = None
    return ET.tostring(root, encoding="unicode")


def _simplify(element: ET.Element) -> None:
    """Makes styles attributes and black the colour of the text around; rounds to two decimals; drops blanks."""
    for rule in element.attrib.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in rule.partition(":"))
        if key == "font":
            element.set("font-size", re.findall(r"[\d.]+(?=px)", value)[0])
        elif key and key != "font-family":
            element.set(key, value.removesuffix("px"))
    for key, value in element.attrib.items():
        value = "currentColor" if value in ("#000000", "black") else value
        value = re.sub(r"-?\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
        element.set(key, " ".join(value.split()))
    if element.tag not in ("text", "tspan"):
        element.text = (element.text or "").strip() or None
    element.tail = None


def _add_hover_texts(root: ET.Element, titles: dict[str, list[str]]) -> None:
    """Gives every marker its text and a larger, invisible place to point at."""
    for group in root.iter("g"):
        name = group.get("id", "")
        if name in titles:
            visible = not name.startswith("curve")
            parents = {child: parent for parent in group.iter() for child in parent}
            for use, text in zip(list(group.iter("use")), titles[name], strict=True):
                point = ET.Element("g", {"class": "point"})
                parents[use][parents[use][:].index(use)] = point
                ET.SubElement(point, "title").text = text
                point.extend([use] if visible else [])
                place = {"cx": use.attrib["x"], "cy": use.attrib["y"], "r": "6" if visible else "4"}
                ET.SubElement(point, "circle", {**place, "fill": "none", "pointer-events": "all"})
            for defs in [] if visible else list(group.iter("defs")):
                parents[defs].remove(defs)


def _rename_ids(root: ET.Element, name: str) -> None:
    """Keeps only ids that are referred to, and makes them begin with the name."""
    used = set()
    for element in root.iter():
        for key in {"href", "clip-path"} & element.attrib.keys():
            used.add(element.attrib[key].rpartition("#")[2].rstrip(")"))
            element.set(key, element.attrib[key].replace("#", f"#{name}-"))
    for element in root.iter():
        old = element.attrib.pop("id", None)
        if old in used:
            element.set("id", f"{name}-{old}")

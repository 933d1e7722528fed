"""A chart of stacked bars as SVG, for the examples that time several ways to do one thing."""

from __future__ import annotations

from html import escape

#: Phase by phase along a bar. Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 60, 90

Bars = dict[str, dict[str, float]]


def chart(title: str, note: str, bars: Bars, unit: str = "s") -> str:
    """The chart: for each bar its phases, from the bottom up, and what they add up to."""
    phases = list(dict.fromkeys(phase for parts in bars.values() for phase in parts))
    colours = {phase: COLOURS[number % len(COLOURS)] for number, phase in enumerate(phases)}
    tallest = max(sum(parts.values()) for parts in bars.values()) or 1.0
    step = nice_step(tallest)
    top = step * -(-tallest // step)
    scale = (HEIGHT - TOP - BOTTOM) / top
    floor = HEIGHT - BOTTOM
    shapes = [text(WIDTH / 2, 24, title, size=16), text(WIDTH / 2, 44, note, size=11, colour="#555")]
    for number in range(round(top / step) + 1):
        y = floor - number * step * scale
        shapes.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        shapes.append(text(LEFT - 8, y + 4, f"{number * step:g}", anchor="end"))
    shapes.append(text(LEFT, TOP - 8, unit, anchor="end"))
    room = (WIDTH - LEFT - RIGHT) / len(bars)
    for number, (name, parts) in enumerate(bars.items()):
        middle, width = LEFT + room * (number + 0.5), room * 0.5
        y = floor
        for phase, value in parts.items():
            y -= value * scale
            shapes.append(
                f'<rect x="{middle - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{value * scale:.1f}" '
                f'fill="{colours[phase]}"><title>{escape(f"{name}, {phase}: {value:.3g} {unit}")}</title></rect>'
            )
        shapes.append(text(middle, y - 6, f"{sum(parts.values()):.3g} {unit}"))
        shapes.append(text(middle, floor + 20, name, size=13))
    x = float(LEFT)
    for phase in phases:
        shapes.append(f'<rect x="{x:.0f}" y="{HEIGHT - 38}" width="12" height="12" fill="{colours[phase]}"/>')
        shapes.append(text(x + 18, HEIGHT - 28, phase, anchor="start"))
        x += 40 + 7 * len(phase)
    inside = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{inside}\n</svg>\n'
    )


def text(x: float, y: float, content: str, size: int = 12, anchor: str = "middle", colour: str = "#000") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{escape(content)}</text>'


def nice_step(largest: float) -> float:
    """A round step that divides an axis into two to five."""
    power = 10.0**-12
    while True:
        for factor in (1, 2, 5):
            if factor * power * 5 >= largest:
                return factor * power
        power *= 10

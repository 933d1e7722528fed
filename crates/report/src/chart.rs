//! Charts as SVG, which a page holds and any browser shows.
//!
//! Lines for what goes over numbers, bars for what goes over words. Every point may have an interval, which is drawn; nothing is
//! smoothed, and no point is drawn that was not handed over.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::samples::Interval;

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// The axis that goes right.
    pub x: Axis,
    /// The axis that goes up.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it is, with its unit.
    pub label: String,
    /// Where on it values lie.
    pub scale: AxisScale,
}

/// Where on an axis values lie.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisScale {
    /// From 0 on.
    Linear,
    /// Whole numbers, with only such beside it.
    Count,
    /// By their logarithm, with round numbers beside it.
    Log10,
    /// By their logarithm, with powers of two beside it, such as `64` and `4Ki`.
    Log2,
    /// Value k is the k-th of these words; each series has a bar there.
    Words(Vec<String>),
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend calls them.
    pub name: String,
    /// They, in the order in which a line joins them.
    pub points: Vec<Point>,
}

/// A point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// In which the true value lies, if somebody knows.
    pub interval: Option<Interval>,
    /// How it is drawn.
    pub mark: Mark,
}

/// How a point is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// In full.
    #[default]
    Full,
    /// As an outline, or pale as a bar or a cross: one that is to be doubted.
    Hollow,
}

/// Without a legend.
const SIZE: (u32, u32) = (720, 420);
const LEGEND_COLUMNS: usize = 3;
const LEGEND_ROW: u32 = 18;
/// Colours that those who see fewer can tell apart (Okabe and Ito, *Color universal design*, 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];
const FONT: &str = "sans-serif";
/// Of the place between two words, the part that bars take.
const BARS: f64 = 0.8;
/// How much of its colour a hollow bar or cross has.
const PALE: f64 = 0.3;

/// The size of the shape on a bar.
const ON_BAR: i32 = 4;

type Drawing<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Keyed, Keyed>>;

/// A part of an axis, and where numbers stand beside it.
#[derive(Clone)]
struct Keyed {
    inner: RangedCoordf64,
    keys: Vec<f64>,
}

impl Keyed {
    fn new(range: (f64, f64), keys: Vec<f64>) -> Keyed {
        Keyed { inner: (range.0..range.1).into(), keys }
    }
}

impl Ranged for Keyed {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.inner.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.keys.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.inner.range()
    }
}

impl Chart {
    /// The chart as an `<svg>` element; nothing when there is no point that the axes can show.
    pub fn svg(&self) -> Option<String> {
        let series: Vec<Series> = self.series.iter().map(|series| self.placed(series)).collect();
        let points = || series.iter().flat_map(|series| &series.points);
        let x_range = match &self.x.scale {
            AxisScale::Words(words) => (-0.5, words.len() as f64 - 0.5),
            _ => range(points().map(|point| point.x))?,
        };
        let ends = |point: &Point| point.interval.map_or([point.y, point.y], |interval| [interval.low, interval.high]);
        let (low, high) = range(points().flat_map(ends).chain(points().map(|point| point.y)))?;
        let room = (high - low) * 0.05;
        let y_range = if self.y.scale == AxisScale::Linear {
            (0.0, high.max(f64::MIN_POSITIVE) * 1.05)
        } else {
            (low - room, high + room)
        };
        let mut svg = String::new();
        {
            // A legend takes nothing from the plot, however long it is.
            let size = (SIZE.0, SIZE.1 + legend_height(series.len()));
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            self.draw(&area, &series, x_range, y_range).expect("a string takes everything");
        }
        Some(svg)
    }

    /// A series without what has no place on the axes, the rest where it is.
    fn placed(&self, series: &Series) -> Series {
        let place = |point: &Point| {
            let interval = point.interval.and_then(|interval| {
                let (low, high) = (self.y.scale.place(interval.low)?, self.y.scale.place(interval.high)?);
                Some(Interval { low, high })
            });
            Some(Point { x: self.x.scale.place(point.x)?, y: self.y.scale.place(point.y)?, interval, mark: point.mark })
        };
        Series { name: series.name.clone(), points: series.points.iter().filter_map(place).collect() }
    }

    fn draw(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        series: &[Series],
        x: (f64, f64),
        y: (f64, f64),
    ) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let (top, plot) = area.split_vertically(28 + legend_height(series.len()));
        let count = |series: &[Series]| series.iter().map(|one| one.points.len()).sum::<usize>();
        let title = match count(&self.series) - count(series) {
            0 => self.title.clone(),
            left_out => format!("{}; without {left_out} that have no place on the axes", self.title),
        };
        top.draw_text(&title, &(FONT, 15).into_text_style(&top), (12, 8))?;
        if series.len() > 1 {
            self.draw_legend(&top, series)?;
        }
        let (x_keys, y_keys) = (self.x.scale.keys(x), self.y.scale.keys(y));
        let mut chart: Drawing<'_> = ChartBuilder::on(&plot)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(Keyed::new(x, x_keys.clone()), Keyed::new(y, y_keys.clone()))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_labels(x_keys.len())
            .y_labels(y_keys.len())
            .x_label_formatter(&|place| self.x.scale.label(*place))
            .y_label_formatter(&|place| self.y.scale.label(*place))
            .x_desc(self.x.label.as_str())
            .y_desc(self.y.label.as_str())
            .label_style((FONT, 12))
            .axis_desc_style((FONT, 13))
            .draw()?;
        for (number, one) in series.iter().enumerate() {
            match self.has_bars() {
                true => draw_bars(&mut chart, one, number, series.len(), y.0)?,
                false => draw_line(&mut chart, one, number)?,
            }
        }
        Ok(())
    }

    fn has_bars(&self) -> bool {
        matches!(self.x.scale, AxisScale::Words(_))
    }

    /// Beside each name what its points look like; bars have their shape on them.
    fn draw_legend(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        series: &[Series],
    ) -> Result<(), Box<dyn std::error::Error>> {
        let style = (FONT, 12).into_text_style(area);
        for (number, one) in series.iter().enumerate() {
            let (row, column) = (number / LEGEND_COLUMNS, number % LEGEND_COLUMNS);
            let (x, y) = (14 + 234 * column as i32, 32 + LEGEND_ROW as i32 * row as i32);
            let middle = (x + 6, y + 4);
            if self.has_bars() || shape(number) == Shape::Circle {
                area.draw(&Rectangle::new([(x, y), (x + 12, y + 8)], colour(number).filled()))?;
            }
            let (colour, size) = if self.has_bars() { (WHITE, ON_BAR) } else { (colour(number), 6) };
            match shape(number) {
                Shape::Circle => {}
                Shape::Triangle => area.draw(&TriangleMarker::new(middle, size, colour.filled()))?,
                Shape::Cross => area.draw(&Cross::new(middle, size - 1, colour.stroke_width(2)))?,
            }
            area.draw_text(&one.name, &style, (x + 18, y - 2))?;
        }
        Ok(())
    }
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// What tells series of one colour apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Circle,
    Triangle,
    Cross,
}

fn shape(number: usize) -> Shape {
    [Shape::Circle, Shape::Triangle, Shape::Cross][number / COLOURS.len() % 3]
}

fn legend_height(series: usize) -> u32 {
    if series > 1 { LEGEND_ROW * series.div_ceil(LEGEND_COLUMNS) as u32 } else { 0 }
}

fn draw_line(chart: &mut Drawing<'_>, series: &Series, number: usize) -> Result<(), Box<dyn std::error::Error>> {
    let colour = colour(number);
    let points = || series.points.iter();
    chart.draw_series(LineSeries::new(points().map(|point| (point.x, point.y)), colour.stroke_width(2)))?;
    for (mark, style) in [(Mark::Full, colour.filled()), (Mark::Hollow, colour.stroke_width(1))] {
        let places = points().filter(|point| point.mark == mark).map(|point| (point.x, point.y));
        match (shape(number), mark) {
            (Shape::Circle, _) => _ = chart.draw_series(places.map(|at| Circle::new(at, 3, style)))?,
            (Shape::Triangle, Mark::Full) => {
                _ = chart.draw_series(places.map(|at| TriangleMarker::new(at, 4, style)))?;
            }
            // The library's triangles are always full.
            (Shape::Triangle, Mark::Hollow) => {
                let outline = || PathElement::new(vec![(0, -4), (4, 2), (-4, 2), (0, -4)], style);
                _ = chart.draw_series(places.map(|at| EmptyElement::at(at) + outline()))?;
            }
            (Shape::Cross, _) => {
                let part = if mark == Mark::Full { 1.0 } else { PALE };
                let style = colour.mix(part).stroke_width(2);
                _ = chart.draw_series(places.map(|at| Cross::new(at, 3, style)))?;
            }
        }
    }
    draw_intervals(chart, points().map(|point| (point.x, point)), colour)
}

fn draw_bars(
    chart: &mut Drawing<'_>,
    series: &Series,
    number: usize,
    count: usize,
    floor: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let colour = colour(number);
    let width = BARS / count as f64;
    let left = |point: &Point| point.x - BARS / 2.0 + width * number as f64;
    let style = |point: &Point| match point.mark {
        Mark::Full => colour.filled(),
        Mark::Hollow => colour.mix(PALE).filled(),
    };
    let bar =
        |point: &Point| Rectangle::new([(left(point), floor), (left(point) + width * 0.94, point.y)], style(point));
    chart.draw_series(series.points.iter().map(bar))?;
    let middles = series.points.iter().map(|point| (left(point) + width * 0.47, (floor + point.y) / 2.0));
    match shape(number) {
        Shape::Circle => {}
        Shape::Triangle => {
            _ = chart.draw_series(middles.map(|at| TriangleMarker::new(at, ON_BAR, WHITE.filled())))?;
        }
        Shape::Cross => {
            _ = chart.draw_series(middles.map(|at| Cross::new(at, ON_BAR - 1, WHITE.stroke_width(2))))?;
        }
    }
    draw_intervals(chart, series.points.iter().map(|point| (left(point) + width / 2.0, point)), BLACK)
}

fn draw_intervals<'p>(
    chart: &mut Drawing<'_>,
    points: impl Iterator<Item = (f64, &'p Point)>,
    colour: RGBColor,
) -> Result<(), Box<dyn std::error::Error>> {
    let line = |(x, point): (f64, &Point)| {
        let Interval { low, high } = point.interval?;
        Some(PathElement::new(vec![(x, low), (x, high)], colour.stroke_width(1)))
    };
    chart.draw_series(points.filter_map(line))?;
    Ok(())
}

/// The least and the greatest, apart from one another even where they are one; nothing when there is no number.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    });
    ends.map(|(low, high)| if low == high { (low - 0.5, high + 0.5) } else { (low, high) })
}

impl AxisScale {
    /// Where a value lies; nothing where it cannot.
    fn place(&self, value: f64) -> Option<f64> {
        let place = match self {
            AxisScale::Linear | AxisScale::Count => value,
            AxisScale::Log10 => value.log10(),
            AxisScale::Log2 => value.log2(),
            AxisScale::Words(words) => {
                return (value >= 0.0 && value < words.len() as f64).then_some(value);
            }
        };
        place.is_finite().then_some(place)
    }

    /// Where numbers stand beside the axis.
    fn keys(&self, (low, high): (f64, f64)) -> Vec<f64> {
        match self {
            AxisScale::Words(words) => (0..words.len()).map(|word| word as f64).collect(),
            AxisScale::Linear => steps(low, high, round_step((high - low) / 6.0)),
            AxisScale::Count => steps(low, high, round_step((high - low) / 8.0).max(1.0)),
            AxisScale::Log2 => steps(low, high, ((high - low) / 8.0).ceil().max(1.0)),
            AxisScale::Log10 if high - low > 6.0 => steps(low, high, 2.0),
            AxisScale::Log10 if high - low > 2.5 => steps(low, high, 1.0),
            AxisScale::Log10 => {
                let mantissas: &[f64] = if high - low > 0.8 {
                    &[1.0, 2.0, 5.0]
                } else {
                    &[1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
                };
                let decades = (low.floor() as i32)..=(high.ceil() as i32);
                let all = decades
                    .flat_map(|decade| mantissas.iter().map(move |mantissa| mantissa.log10() + f64::from(decade)));
                let keys: Vec<f64> = all.filter(|place| (low..=high).contains(place)).collect();
                if keys.len() > 1 {
                    return keys;
                }
                // In so small a part logarithms are all but even.
                let (least, most) = (10f64.powf(low), 10f64.powf(high));
                steps(least, most, round_step((most - least) / 5.0)).into_iter().map(f64::log10).collect()
            }
        }
    }

    /// What stands there.
    fn label(&self, place: f64) -> String {
        match self {
            AxisScale::Linear | AxisScale::Count => short(place),
            AxisScale::Log10 => short(10f64.powf(place)),
            AxisScale::Log2 => {
                let power = place.round().max(0.0) as u32;
                const UNITS: [&str; 5] = ["", "Ki", "Mi", "Gi", "Ti"];
                let unit = (power / 10).min(4);
                format!("{}{}", 1u64 << (power - 10 * unit).min(63), UNITS[unit as usize])
            }
            AxisScale::Words(words) => words.get(place.round() as usize).cloned().unwrap_or_default(),
        }
    }
}

/// 1, 2 or 5 times a power of ten.
fn round_step(about: f64) -> f64 {
    let power = 10f64.powf(about.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= about);
    step.unwrap_or(10.0) * power
}

fn steps(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).take(64).map(|number| number as f64 * step).collect()
}

/// A number in three digits, or all before the point, however small it is.
fn short(value: f64) -> String {
    let text = match value.abs() {
        0.0 => return "0".into(),
        size if size >= 1e6 => return format!("{}M", short(value / 1e6)),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size => format!("{value:.*}", (2.0 - size.log10().floor()) as usize),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: AxisScale, y: AxisScale) -> Chart {
        let point =
            |x: f64, y: f64| Point { x, y, interval: Some(Interval { low: y * 0.9, high: y * 1.1 }), mark: Mark::Full };
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            points: vec![point(0.0, factor), point(1.0, 10.0 * factor), point(2.0, 25.0 * factor)],
        };
        let axis = |label: &str, scale| Axis { label: label.into(), scale };
        Chart {
            title: "a < b".into(),
            x: axis("x", x),
            y: axis("y, ns", y),
            series: vec![series("one & two", 1.0), series("three", 2.0)],
        }
    }

    #[test]
    fn a_chart_has_its_texts_and_a_mark_for_each_point() {
        let svg = chart(AxisScale::Linear, AxisScale::Log10).svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["a &lt; b", "one &amp; two", "three", "y, ns"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<circle").count(), 6);
        // On a logarithmic axis nothing lies at 0.
        let without = chart(AxisScale::Log2, AxisScale::Linear).svg().unwrap();
        assert!(without.matches("<circle").count() == 4 && without.contains("without 2 that have no place"));
        let words = AxisScale::Words(vec!["a".into(), "b".into(), "c".into()]);
        let bars = chart(words, AxisScale::Linear).svg().unwrap();
        assert!(!bars.contains("<circle") && bars.matches("<rect").count() >= 6);
    }

    fn many(x: AxisScale, series: usize) -> Chart {
        let one = chart(x, AxisScale::Linear);
        let named = |number| Series { name: format!("s{number}"), ..one.series[0].clone() };
        Chart { series: (0..series).map(named).collect(), ..one }
    }

    #[test]
    fn many_series_can_be_told_apart_and_leave_the_plot_its_room() {
        let svg = many(AxisScale::Linear, 60).svg().unwrap();
        assert!((0..60).all(|number| svg.contains(&format!("s{number}\n"))));
        assert!(svg.contains(&format!("height=\"{}\"", SIZE.1 + 20 * LEGEND_ROW)));
        assert!(svg.contains("<polygon") && svg.matches("<circle").count() < 60 * 3);
        assert_eq!([0, 7, 8, 16, 24].map(shape)[1..], [Shape::Circle, Shape::Triangle, Shape::Cross, Shape::Circle]);
    }

    #[test]
    fn a_hollow_point_looks_different_whatever_its_shape() {
        for scale in [AxisScale::Linear, AxisScale::Words(vec!["a".into(), "b".into(), "c".into()])] {
            let full = many(scale, 3 * COLOURS.len());
            for number in [0, COLOURS.len(), 2 * COLOURS.len()] {
                let mut hollow = full.clone();
                hollow.series[number].points[1].mark = Mark::Hollow;
                // What is drawn, in whatever order.
                let drawn = |chart: &Chart| {
                    let svg = chart.svg().unwrap();
                    let mut lines: Vec<String> = svg.lines().map(str::to_owned).collect();
                    lines.sort_unstable();
                    lines
                };
                let (full, hollow) = (drawn(&full), drawn(&hollow));
                assert!(full != hollow && full.len() == hollow.len(), "{:?}", shape(number));
            }
        }
    }

    /// Series of one colour have bars with other shapes on them, which stand in the legend too.
    #[test]
    fn bars_of_one_colour_can_be_told_apart() {
        let shapes = |series: usize| {
            let words = AxisScale::Words(vec!["a".into(), "b".into(), "c".into()]);
            let svg = many(words, series).svg().unwrap();
            svg.matches("<polygon").count()
        };
        assert_eq!((shapes(COLOURS.len()), shapes(COLOURS.len() + 1)), (0, 3 + 1));
    }

    #[test]
    fn nothing_is_drawn_where_nothing_is() {
        let mut empty = chart(AxisScale::Linear, AxisScale::Linear);
        empty.series.clear();
        assert_eq!(empty.svg(), None);
        let mut one = chart(AxisScale::Log2, AxisScale::Log10);
        one.series = vec![Series {
            name: "s".into(),
            points: vec![Point { x: 64.0, y: 7.0, interval: None, mark: Mark::Full }],
        }];
        assert_eq!(one.svg().unwrap().matches("<circle").count(), 1);
        one.series[0].points[0].y = f64::NAN;
        assert_eq!(one.svg(), None);
    }

    #[test]
    fn numbers_beside_axes_are_round() {
        assert_eq!([6.0, 12.0, 30.0].map(|place| AxisScale::Log2.label(place)), ["64", "4Ki", "1Gi"]);
        assert_eq!([0.0, 2.0, -1.0, 7.0].map(|place| AxisScale::Log10.label(place)), ["1", "100", "0.1", "10M"]);
        assert_eq!(
            [0.0, 2.5, 1234.0, 0.5, 0.00056, 0.00003].map(short),
            ["0", "2.5", "1234", "0.5", "0.00056", "0.00003"]
        );
        assert_eq!(AxisScale::Linear.keys((0.0, 31.0)), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(AxisScale::Count.keys((1.0, 2.0)), [1.0, 2.0]);
        assert_eq!(AxisScale::Count.keys((0.5, 1.5)), [1.0]);
        assert_eq!(AxisScale::Count.keys((1.0, 64.0)), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert!(AxisScale::Log10.keys((0.1, 0.5)).len() >= 3);
        let narrow = AxisScale::Log10.keys((104f64.log10(), 108f64.log10()));
        assert_eq!(
            narrow.iter().map(|place| AxisScale::Log10.label(*place)).collect::<Vec<_>>(),
            ["104", "105", "106", "107", "108"]
        );
        assert_eq!(AxisScale::Log2.keys((6.0, 24.0)), [6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 24.0]);
    }
}

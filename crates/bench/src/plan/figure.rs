//! Figures of a plan: which cells of a run are drawn, and how.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Experiment;
use super::yaml::Node;
use crate::error::Result;
use crate::measure;
use crate::value::{self, Value};

/// A figure of a report, drawn from the cells of a run.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct Figure {
    /// What stands above it.
    pub title: String,
    /// The measurement.
    pub measure: String,
    /// The metric that goes up.
    pub y: String,
    /// The key that goes right, or the metric; a key of words makes bars.
    pub x: String,
    /// Where that is a metric: the keys whose values a line goes along.
    #[serde(default)]
    pub along: Vec<String>,
    /// The keys of which each combination is a line; others in which cells differ are added.
    pub series: Vec<String>,
    /// Keys and values of the cells that are drawn.
    pub filter: BTreeMap<String, Vec<Value>>,
    /// Which axes are logarithmic.
    pub scale: Scale,
    /// What others have published, to stand beside it.
    pub published: Vec<Published>,
}

/// Which axes are logarithmic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Neither.
    #[default]
    Linear,
    /// The one that goes right.
    LogX,
    /// The one that goes up.
    LogY,
    /// Both.
    LogLog,
}

/// A published value. Nothing is drawn of it as if it had been measured here.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct Published {
    /// Who published it, and where.
    pub source: String,
    /// Of what it is.
    pub what: String,
    /// The value, in the unit of the figure.
    pub value: f64,
}

pub(super) fn figure(node: &Node<'_>) -> Result<Figure> {
    let entries = node.entries()?;
    let find = |name: &str| entries.iter().find(|(key, ..)| key == name).map(|(_, _, node)| *node);
    let need = |name: &str| find(name).ok_or_else(|| node.refuse(format!("a figure needs '{name}'")));
    const KEYS: [&str; 9] = ["title", "measure", "y", "x", "along", "series", "where", "scale", "published"];
    if let Some((key, at, _)) = entries.iter().find(|(key, ..)| !KEYS.contains(&key.as_str())) {
        return Err(at.refuse(format!("'{key}' is none of: {}", KEYS.join(", "))));
    }
    let name = need("measure")?;
    let measure =
        name.parsed(|name| measure::named(name).ok_or_else(|| format!("there is no measurement '{name}'")))?;
    let experiment = Experiment::new(measure);
    let key = |node: &Node<'_>| node.parsed(|name| experiment.known(name).map(|key| key.name.to_owned()));
    let metrics: Vec<&str> = measure.metrics().iter().map(|metric| metric.name).collect();
    let is_metric = |text: &str| match metrics.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is none of: {}", metrics.join(", "))),
    };
    let scale = |text: &str| match text {
        "linear" => Ok(Scale::Linear),
        "log-x" => Ok(Scale::LogX),
        "log-y" => Ok(Scale::LogY),
        "log-log" => Ok(Scale::LogLog),
        _ => Err(format!("'{text}' is none of: linear, log-x, log-y, log-log")),
    };
    let keys = |name: &str| {
        find(name).map(|node| node.items().iter().map(key).collect()).transpose().map(Option::unwrap_or_default)
    };
    let (x_node, along): (_, Vec<String>) = (need("x")?, keys("along")?);
    let x = x_node.parsed(|name| match (experiment.known(name), metrics.contains(&name)) {
        (Ok(_), _) if !along.is_empty() => Err("only a metric needs 'along'".into()),
        (Ok(key), _) => Ok(key.name.to_owned()),
        (Err(_), true) if along.is_empty() => {
            Err(format!("the metric '{name}' needs 'along': the keys that a line goes along"))
        }
        (Err(_), true) => Ok(name.to_owned()),
        (Err(_), false) => Err(format!("'{name}' is neither a key nor a metric of {}", measure.name())),
    })?;
    let mut filter = BTreeMap::new();
    for (name, at, values) in find("where").map(|node| node.entries()).transpose()?.unwrap_or_default() {
        let known = experiment.known(&name).map_err(|what| at.refuse(what))?;
        let values = known.list(values.values()?.iter().map(|item| item.parsed(|text| known.values(text))))?;
        filter.insert(name, values);
    }
    Ok(Figure {
        title: need("title")?.text()?,
        measure: measure.name().to_owned(),
        y: need("y")?.parsed(is_metric)?,
        x,
        along,
        series: keys("series")?,
        filter,
        scale: find("scale").map(|node| node.parsed(scale)).transpose()?.unwrap_or_default(),
        published: find("published")
            .map(|node| node.list()?.iter().map(published).collect())
            .transpose()?
            .unwrap_or_default(),
    })
}

fn published(node: &Node<'_>) -> Result<Published> {
    let entries = node.entries()?;
    let need = |name: &str| {
        let found = entries.iter().find(|(key, ..)| key == name).map(|(_, _, node)| *node);
        found.ok_or_else(|| node.refuse(format!("a published value needs '{name}'")))
    };
    if let Some((key, at, _)) = entries.iter().find(|(key, ..)| !["source", "what", "value"].contains(&key.as_str())) {
        return Err(at.refuse(format!("'{key}' is none of: source, what, value")));
    }
    Ok(Published {
        source: need("source")?.text()?,
        what: need("what")?.text()?,
        value: need("value")?.parsed(value::real)?,
    })
}

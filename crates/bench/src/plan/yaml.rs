//! YAML with the line and column of everything, so that a plan is refused where it is wrong.

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, ScanError, YamlData};

use crate::error::{Error, Result};

/// A node of a plan.
#[derive(Clone, Copy)]
pub(super) struct Node<'y> {
    origin: &'y str,
    yaml: &'y MarkedYaml<'y>,
}

/// The one document of a text.
pub(super) fn document<'t>(origin: &str, text: &'t str) -> Result<MarkedYaml<'t>> {
    let refuse =
        |line: usize, column: usize, what: String| Error::Plan { place: format!("{origin}:{line}:{column}"), what };
    let failed = |error: ScanError| refuse(error.marker().line(), error.marker().col() + 1, error.info().to_owned());
    let mut documents = MarkedYaml::load_from_str(text).map_err(failed)?;
    match documents.len() {
        1 => Ok(documents.remove(0)),
        0 => Err(refuse(1, 1, "the plan is empty: expected a list of cells under 'cells'".into())),
        _ => Err(refuse(1, 1, "expected one document, and there is more than one".into())),
    }
}

impl<'y> Node<'y> {
    pub(super) fn new(origin: &'y str, yaml: &'y MarkedYaml<'y>) -> Node<'y> {
        Node { origin, yaml }
    }

    /// An error here.
    pub(super) fn refuse(&self, what: impl Into<String>) -> Error {
        let start = self.yaml.span.start;
        Error::Plan { place: format!("{}:{}:{}", self.origin, start.line(), start.col() + 1), what: what.into() }
    }

    /// A word or number, as text.
    pub(super) fn text(&self) -> Result<String> {
        match &self.yaml.data {
            YamlData::Value(Scalar::String(text)) => Ok(text.clone().into_owned()),
            YamlData::Value(Scalar::Integer(number)) => Ok(number.to_string()),
            YamlData::Value(Scalar::FloatingPoint(number)) => Ok(number.to_string()),
            YamlData::Value(Scalar::Boolean(is_so)) => Ok(is_so.to_string()),
            _ => Err(self.refuse("expected a word or a number")),
        }
    }

    /// What a function makes of the text.
    pub(super) fn parsed<T>(&self, parse: impl Fn(&str) -> std::result::Result<T, String>) -> Result<T> {
        parse(&self.text()?).map_err(|what| self.refuse(what))
    }

    /// The items of a list; anything else is a list of one.
    pub(super) fn items(&self) -> Vec<Node<'y>> {
        match &self.yaml.data {
            YamlData::Sequence(items) => items.iter().map(|yaml| Node { yaml, ..*self }).collect(),
            _ => vec![*self],
        }
    }

    /// The same, of which there must be some: no value at all would leave no cell.
    pub(super) fn values(&self) -> Result<Vec<Node<'y>>> {
        let items = self.items();
        if items.is_empty() {
            Err(self.refuse("expected a value, or a list of some: this list is empty"))
        } else {
            Ok(items)
        }
    }

    /// The items of a list.
    pub(super) fn list(&self) -> Result<Vec<Node<'y>>> {
        match &self.yaml.data {
            YamlData::Sequence(_) => Ok(self.items()),
            _ => Err(self.refuse("expected a list")),
        }
    }

    /// Names and what they stand for.
    pub(super) fn entries(&self) -> Result<Vec<(String, Node<'y>, Node<'y>)>> {
        let YamlData::Mapping(entries) = &self.yaml.data else {
            return Err(self.refuse("expected names with values, such as 'measure: latency'"));
        };
        let entry = |(key, value): (&'y MarkedYaml<'y>, &'y MarkedYaml<'y>)| {
            let (key, value) = (Node { yaml: key, ..*self }, Node { yaml: value, ..*self });
            Ok((key.text()?, key, value))
        };
        entries.iter().map(entry).collect()
    }
}

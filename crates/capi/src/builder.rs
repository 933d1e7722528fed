//! A value that is pushed together node by node.

use store::{Array, Buffer, DType, Descriptor, Node, Object, Order, Source};

use crate::error::{Result, mistake};

/// Texts and bytes from this length on lie in buffers, as in Python.
const LONG_BYTES: u64 = 4 << 10;

/// What has been begun and not ended.
enum Frame {
    List(Vec<Node>),
    Tuple(Vec<Node>),
    Mapping(Vec<Node>),
    Table { rows: u64, nodes: Vec<Node> },
    Dictionary { first: u8, is_ordered: bool, nodes: Vec<Node> },
    Nullable { validity: Buffer, items: Option<Node> },
    Attributed(Attributed),
}

struct Attributed {
    owner: String,
    value: Option<Node>,
    /// Of the attribute that comes next.
    name: Option<String>,
    attributes: Vec<(String, Node)>,
}

/// One object on its way into a batch.
///
/// # Invariants
/// 1. A frame is never more than [`Node::MAX_DEPTH`] deep.
/// 2. `whole` is there only without frames.
#[derive(Default)]
pub(crate) struct Builder {
    frames: Vec<Frame>,
    whole: Option<Node>,
    sources: Vec<Source<'static>>,
}

/// What can be begun.
pub(crate) enum Begin<'a> {
    List,
    Tuple,
    Mapping,
    Table { rows: u64 },
    Dictionary { first: u8, is_ordered: bool },
    Nullable { validity: Source<'static> },
    Attributed { owner: &'a str },
}

impl Builder {
    /// Whether it is one whole value.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    fn has_room(&self) -> Result<()> {
        assert!(!self.is_whole(), "what is whole is taken away at once");
        match self.frames.last() {
            Some(Frame::Nullable { items: Some(_), .. }) => Err(mistake("what is nullable has one node, its items")),
            Some(Frame::Dictionary { nodes, .. }) if nodes.len() == 2 => {
                Err(mistake("a dictionary has two nodes, places and values"))
            }
            Some(Frame::Attributed(Attributed { value: Some(_), name: None, .. })) => {
                Err(mistake("name the attribute before its value"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn begin(&mut self, what: Begin<'_>) -> Result<()> {
        self.has_room()?;
        if self.frames.len() + 1 >= Node::MAX_DEPTH {
            return Err(mistake("the value is nested too deep"));
        }
        let frame = match what {
            Begin::List => Frame::List(Vec::new()),
            Begin::Tuple => Frame::Tuple(Vec::new()),
            Begin::Mapping => Frame::Mapping(Vec::new()),
            Begin::Table { rows } => Frame::Table { rows, nodes: Vec::new() },
            Begin::Dictionary { first, is_ordered } => Frame::Dictionary { first, is_ordered, nodes: Vec::new() },
            Begin::Nullable { validity } => Frame::Nullable { validity: self.buffer(validity), items: None },
            Begin::Attributed { owner } => {
                let owner = owner.to_owned();
                Frame::Attributed(Attributed { owner, value: None, name: None, attributes: Vec::new() })
            }
        };
        self.frames.push(frame);
        Ok(())
    }

    /// Names the attribute that comes next.
    pub(crate) fn attribute(&mut self, name: &str) -> Result<()> {
        match self.frames.last_mut() {
            Some(Frame::Attributed(Attributed { value: Some(_), name: next @ None, .. })) => {
                *next = Some(name.to_owned());
                Ok(())
            }
            Some(Frame::Attributed(Attributed { value: None, .. })) => {
                Err(mistake("the value comes before its attributes"))
            }
            Some(Frame::Attributed(_)) => Err(mistake("the attribute that was named before has no value yet")),
            _ => Err(mistake("there is nothing here that has attributes")),
        }
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        let flaw = match self.frames.last() {
            None => Some("nothing was begun"),
            Some(Frame::Mapping(nodes) | Frame::Table { nodes, .. }) if nodes.len() % 2 == 1 => {
                Some("the last key has no value")
            }
            Some(Frame::Dictionary { nodes, .. }) if nodes.len() != 2 => Some("a dictionary has places and values"),
            Some(Frame::Nullable { items: None, .. }) => Some("what is nullable has items"),
            Some(Frame::Attributed(Attributed { value: None, .. })) => Some("what has attributes is missing"),
            Some(Frame::Attributed(Attributed { name: Some(_), .. })) => Some("the last attribute has no value"),
            Some(_) => None,
        };
        if let Some(flaw) = flaw {
            return Err(mistake(format!("this cannot be ended: {flaw}")));
        }
        let node = match self.frames.pop().expect("it was looked at above") {
            Frame::List(nodes) => Node::List(nodes),
            Frame::Tuple(nodes) => Node::Tuple(nodes),
            Frame::Mapping(nodes) => Node::Mapping(pairs(nodes)),
            Frame::Table { rows, nodes } => Node::Table { rows, columns: pairs(nodes) },
            Frame::Dictionary { first, is_ordered, nodes } => {
                let [indices, values] = <[Node; 2]>::try_from(nodes).expect("they were counted above");
                Node::Dictionary { indices: Box::new(indices), first, values: Box::new(values), is_ordered }
            }
            Frame::Nullable { validity, items } => {
                Node::Nullable { items: Box::new(items.expect("it was looked at above")), validity }
            }
            Frame::Attributed(Attributed { owner, value, attributes, .. }) => {
                let value = Box::new(value.expect("it was looked at above"));
                Node::Attributed { value, owner, attributes }
            }
        };
        self.place(node);
        Ok(())
    }

    /// Adds a leaf.
    pub(crate) fn push(&mut self, node: Node) -> Result<()> {
        self.has_room()?;
        self.place(node);
        Ok(())
    }

    /// Puts a node where [`Builder::has_room`] has found a place.
    fn place(&mut self, node: Node) {
        match self.frames.last_mut() {
            None => self.whole = Some(node),
            Some(Frame::List(nodes) | Frame::Tuple(nodes) | Frame::Mapping(nodes)) => nodes.push(node),
            Some(Frame::Table { nodes, .. } | Frame::Dictionary { nodes, .. }) => nodes.push(node),
            Some(Frame::Nullable { items, .. }) => *items = Some(node),
            Some(Frame::Attributed(attributed)) => match attributed.name.take() {
                Some(name) => attributed.attributes.push((name, node)),
                None => attributed.value = Some(node),
            },
        }
    }

    fn buffer(&mut self, source: Source<'static>) -> Buffer {
        self.sources.push(source);
        Buffer(self.sources.len() as u32 - 1)
    }

    /// Adds a text, or bytes: short ones into the tree itself, by `copy`.
    pub(crate) fn long(&mut self, is_text: bool, source: Source<'static>, copy: impl FnOnce() -> Node) -> Result<()> {
        self.has_room()?;
        // A whole object is kept as a text or bytes of its own, which are never in a tree.
        let is_inline = source.len_bytes() < LONG_BYTES && !self.frames.is_empty();
        let node = if is_inline { copy() } else { Node::Long { is_text, buffer: self.buffer(source) } };
        self.place(node);
        Ok(())
    }

    pub(crate) fn array(&mut self, dtype: DType, shape: Vec<u64>, order: Order, items: Source<'static>) -> Result<()> {
        self.has_room()?;
        let buffer = self.buffer(items);
        self.place(Node::Array(Array { dtype, shape, order, buffer }));
        Ok(())
    }

    pub(crate) fn strings(
        &mut self,
        len: u64,
        offsets: Source<'static>,
        data: Source<'static>,
        validity: Option<Source<'static>>,
        is_text: bool,
    ) -> Result<()> {
        self.has_room()?;
        let (offsets, data) = (self.buffer(offsets), self.buffer(data));
        let validity = validity.map(|bits| self.buffer(bits));
        self.place(Node::Strings { len, offsets, data, validity, is_text });
        Ok(())
    }

    pub(crate) fn foreign(&mut self, codec: &str, stream: Source<'static>, more: Vec<Source<'static>>) -> Result<()> {
        self.has_room()?;
        let stream = self.buffer(stream);
        let buffers = more.into_iter().map(|source| self.buffer(source)).collect();
        self.place(Node::Foreign { codec: codec.to_owned(), stream, buffers });
        Ok(())
    }

    /// The object, of which one array, one text or some bytes are kept as what they are.
    pub(crate) fn finish(self) -> Result<Object<'static>> {
        let Some(node) = self.whole else { return Err(mistake("the last object is not whole: end what was begun")) };
        match (node, &self.sources[..]) {
            (Node::Array(Array { dtype, shape, order, .. }), &[items]) => {
                Ok(Object::from_source(Descriptor::array(dtype, &shape, order)?, items)?)
            }
            (Node::Long { is_text, .. }, &[source]) => Ok(Object::plain_from_source(is_text, source)),
            (node, _) => Ok(Object::value(node, self.sources)?),
        }
    }
}

fn pairs(nodes: Vec<Node>) -> Vec<(Node, Node)> {
    let mut nodes = nodes.into_iter();
    let mut made = Vec::with_capacity(nodes.len() / 2);
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        made.push((key, value));
    }
    made
}

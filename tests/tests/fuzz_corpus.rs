//! The fuzz targets' committed inputs, replayed without a fuzzer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bench::join::{Durable, DurableTable, Row};
use bench::plan::Plan;
use pmem::{Heap, Layout, MIN_FILE_BYTES, PartOptions, Pool};
use store::{
    Array, Buffer, ByteOrder, Checksums, DType, Descriptor, Field, FloatFormat, Node, Object, Order, PersistOptions,
    Store, TimeStep, TimeUnit, TypeClass,
};

#[path = "../../fuzz/src/join.rs"]
mod join;
#[path = "../../fuzz/src/object.rs"]
mod object;
#[path = "../../fuzz/src/plan.rs"]
mod plan;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

/// A structure with a time and a sub-array in it.
fn structure() -> DType {
    let new = |class, order, size| DType::new(class, order, size).expect("a type of the table");
    let step = TimeStep { unit: TimeUnit::Nanoseconds, multiple: 25 };
    let time = new(TypeClass::DateTime(step), ByteOrder::Little, 8);
    let base = Box::new(new(TypeClass::Complex(FloatFormat::Ieee), ByteOrder::Big, 8));
    let grid = new(TypeClass::SubArray { shape: vec![2, 3], base }, ByteOrder::None, 48);
    let field = |name: &str, offset_bytes, dtype| Field { name: name.into(), offset_bytes, dtype };
    let fields = vec![field("t", 0, time), field("größe", 8, grid)];
    new(TypeClass::Struct { fields, aligned: true }, ByteOrder::None, 56)
}

/// A value with a node of most kinds.
fn value(buffers: &[Vec<u8>; 4]) -> Object<'_> {
    let array = |len, buffer| {
        let dtype = DType::new(TypeClass::Uint, ByteOrder::None, 1).expect("a byte");
        Node::Array(Array { dtype, shape: vec![len], order: Order::RowMajor, buffer: Buffer(buffer) })
    };
    let text = |text: &str| Node::Text(text.into());
    let table = Node::Table {
        rows: 2,
        columns: vec![
            (text("a"), Node::Nullable { items: Box::new(array(2, 0)), validity: Buffer(1) }),
            (text("b"), Node::Strings { len: 2, offsets: Buffer(2), data: Buffer(3), validity: None, is_text: true }),
        ],
    };
    let plain = vec![Node::Nothing, Node::Bool(true), Node::Int(-1), Node::Float(0.5), Node::Complex(1.0, 2.0)];
    let attributes = vec![("index".into(), Node::Tuple(plain)), ("name".into(), Node::Bytes(vec![1, 2]))];
    let tree = Node::Attributed { value: Box::new(table), owner: "pandas".into(), attributes };
    let sources = buffers.iter().map(|buffer| buffer[..].into()).collect();
    Object::value(Node::Mapping(vec![(text("t"), tree)]), sources).expect("its parts fit")
}

/// Inputs made of what the store itself writes: kind, flags, the size of the extent, no bytes of it, and the description.
fn seeds() -> BTreeMap<String, Vec<u8>> {
    let path = Path::new("/pools/seeds");
    let store = Store::create(Heap::new(), path, &PartOptions::single(8 << 20)).expect("a new store");
    let float = DType::new(TypeClass::Float(FloatFormat::Ieee), ByteOrder::Little, 8).expect("a double");
    let text = DType::new(TypeClass::Unicode, ByteOrder::Little, 12).expect("three code points");
    let described = [
        ("doubles", Descriptor::array(float, &[3, 5], Order::ColumnMajor)),
        ("structures", Descriptor::array(structure(), &[2], Order::RowMajor)),
        ("strings", Descriptor::array(text, &[4, 0], Order::RowMajor)),
    ];
    for (name, descriptor) in described {
        let descriptor = descriptor.expect("a small array");
        let bytes = vec![0; descriptor.payload_bytes() as usize];
        let object = Object::described(descriptor, &bytes).expect("as many bytes as it says");
        let summed = PersistOptions { checksums: Checksums::Crc32c, ..PersistOptions::default() };
        store.persist(&[(name, object)], &summed).expect("there is room");
    }
    let objects = [("text", Object::text("größer")), ("bytes", Object::bytes(&[7; 200]))];
    store.persist(&objects, &PersistOptions::default()).expect("there is room");
    let buffers = [vec![1, 2], vec![3], [0u64, 1, 3].into_iter().flat_map(u64::to_le_bytes).collect(), b"abc".to_vec()];
    store.persist(&[("value", value(&buffers))], &PersistOptions::default()).expect("there is room");
    let regions = store.pool().regions("").expect("the process has not forked");
    let seed = |region: &pmem::Region<Heap>| {
        let info = region.info();
        let size = if info.extents.is_empty() { 0 } else { 3 };
        let mut input = vec![info.kind as u8, info.flags as u8, size, 0];
        input.extend(&info.meta);
        (region.name().to_owned(), input)
    };
    let mut seeds: BTreeMap<String, Vec<u8>> = regions.iter().map(seed).collect();
    // The bytes again, of which eight wait in a redo extent: one range of the first extent, there where its table ends.
    let bytes = &seeds["bytes"][4..];
    let head: Vec<u8> = [1u64, 0, 0, 8].into_iter().flat_map(u64::to_le_bytes).collect();
    let redo = [&[2, 2, 3, 4], &head[..], bytes].concat();
    seeds.insert("redo".into(), redo);
    seeds
}

/// A table of few rows, two of which meet in a chain, and plans that say something of everything.
fn other_seeds() -> BTreeMap<&'static str, (String, Vec<u8>)> {
    let path = Path::new("/pools/seeds");
    let layout = Layout { name: "join", version: 1 };
    let pool = Pool::create(Heap::new(), path, layout, &PartOptions::single(MIN_FILE_BYTES)).expect("a new pool");
    let table = DurableTable::<_, 2>::create(&pool, "table", 4, 1).expect("there is room");
    let rows = [1, 2, 3, 4].map(|key| Row { key, value: [10 * key, !key] });
    table.inserter(Durable::Blocks).insert(&rows, |_| ()).expect("there is room");
    let region = pool.region("table").expect("it was made");
    let mut content = vec![0; DurableTable::<Heap, 2>::len_bytes(4, 1) as usize];
    region.load_bytes(0, 0, &mut content);
    let table = [&region.info().meta[..], &content].concat();
    let plan = "about: x\nbudget: 1m\nprecision: 2%\nrounds: 5 to 20\nsample: 20ms\ncells:\n- measure: load\n  memory: [dram, \"model:ddr4*2\"]\n  keep: memory\n  size: 64:*2:1Ki\n- {measure: join, method: all}\nfigures:\n- {title: t, measure: load, y: latency, x: size, series: [memory], where: {chains: 1}, scale: log-log, published: [{what: w, value: 1.5, source: s}]}\n";
    Plan::parse("all.yaml", plan).and_then(|plan| plan.cells()).expect("the seed is a plan");
    BTreeMap::from([("join", ("rows".to_owned(), table)), ("plan", ("all".to_owned(), plan.as_bytes().to_vec()))])
}

#[test]
fn the_corpus_holds_what_the_store_writes() {
    let objects = seeds().into_iter().map(|seed| ("object", seed));
    for (target, (name, input)) in objects.chain(other_seeds()) {
        let file = corpus(target).join(&name);
        if std::env::var_os("REMANENT_WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(corpus(target)).expect("a folder of the tree");
            std::fs::write(&file, &input).expect("a file of the tree");
        }
        assert!(
            std::fs::read(&file).expect("a file of the corpus") == input,
            "{name}: a changed format needs a version"
        );
    }
}

/// Every input as it is, cut short at each length, and with each byte changed.
fn replay(target: &str, run: impl Fn(&[u8])) -> usize {
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus(target)).expect("a folder of the tree") {
        let input = std::fs::read(entry.expect("an entry").path()).expect("a file of the corpus");
        for len in 0..=input.len() {
            run(&input[..len]);
        }
        for at in 0..input.len() {
            for flip in [1, 0x80, 0xff] {
                let mut changed = input.clone();
                changed[at] ^= flip;
                run(&changed);
                inputs += 1;
            }
        }
    }
    inputs
}

#[test]
fn inputs_cut_short_and_changed_are_read_or_refused() {
    for (target, run) in [("object", object::run as fn(&[u8])), ("join", join::run), ("plan", plan::run)] {
        let inputs = replay(target, run);
        assert!(inputs > 500, "{target}: {inputs} inputs");
    }
}

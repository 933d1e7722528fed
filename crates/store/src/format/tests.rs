//! The bytes themselves, and what damage to them does.

use proptest::prelude::*;

use super::*;

fn little(class: TypeClass, item_bytes: u64) -> DType {
    DType::new(class, ByteOrder::Little, item_bytes).unwrap()
}

/// A structure with a time and a sub-array in it.
fn nested() -> DType {
    let time = little(TypeClass::DateTime(TimeStep { unit: TimeUnit::Nanoseconds, multiple: 25 }), 8);
    let base = Box::new(DType::new(TypeClass::Int, ByteOrder::Big, 2).unwrap());
    let grid = DType::new(TypeClass::SubArray { shape: vec![2, 3], base }, ByteOrder::None, 12).unwrap();
    let fields = vec![
        Field { name: "t".into(), offset_bytes: 0, dtype: time },
        Field { name: "größe".into(), offset_bytes: 8, dtype: grid },
    ];
    DType::new(TypeClass::Struct { fields, aligned: true }, ByteOrder::None, 24).unwrap()
}

#[test]
fn an_array_of_doubles_has_these_bytes() {
    let dtype = little(TypeClass::Float(FloatFormat::Ieee), 8);
    let mut descriptor = Descriptor::array(dtype, &[3, 5], Order::ColumnMajor).unwrap();
    descriptor.checksum = Checksum::Crc32c(0x1234_5678);
    #[rustfmt::skip]
    let golden = [
        1, 0,  1,  2,  1, 0, 0, 0,
        120, 0, 0, 0, 0, 0, 0, 0,
        0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0,
        16, 0, 0, 0,  0, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,
        5, 0, 0, 0, 0, 0, 0, 0,
        4, 1, 0, 0,  0, 0, 0, 0,
        8, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(encode(&descriptor), golden);
    assert_eq!(decode(1, 0, &golden), Ok(descriptor));
}

#[test]
fn a_structure_has_these_bytes() {
    let descriptor = Descriptor::array(nested(), &[], Order::RowMajor).unwrap();
    #[rustfmt::skip]
    let golden = [
        &[1, 0,  0,  0,  0, 0, 0, 0,  24, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  108, 0, 0, 0,  0, 0, 0, 0][..],
        &[11, 0, 1, 0,  2, 0, 0, 0,  24, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 0,  1, 0],
        b"t",
        &[9, 1, 10, 0,  25, 0, 0, 0,  8, 0, 0, 0, 0, 0, 0, 0],
        &[8, 0, 0, 0, 0, 0, 0, 0,  7, 0],
        "größe".as_bytes(),
        &[12, 0, 0, 0,  2, 0, 0, 0,  12, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0, 0, 0,  3, 0, 0, 0, 0, 0, 0, 0],
        &[2, 2, 0, 0,  0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(encode(&descriptor), golden);
    assert_eq!(decode(1, 0, &golden), Ok(descriptor));
}

#[test]
fn what_a_later_version_wrote_is_refused_as_unknown() {
    let good = encode(&Descriptor::plain(ObjectKind::Text, 7));
    assert!(decode(3, 0, &good).is_ok());
    assert!(matches!(decode(5, 0, &good), Err(Refused::Unknown(_))));
    assert!(matches!(decode(3, 8, &good), Err(Refused::Unknown(_))));
    let mut newer = good.clone();
    newer[at::VERSION] = 2;
    assert!(matches!(decode(3, 0, &newer), Err(Refused::Unknown(_))));
    let mut algorithm = good;
    algorithm[at::ALGORITHM] = 2;
    assert!(matches!(decode(3, 0, &algorithm), Err(Refused::Unknown(_))));
}

#[test]
fn a_descriptor_cut_short_or_drawn_out_is_damaged() {
    let good = encode(&Descriptor::array(nested(), &[2], Order::RowMajor).unwrap());
    for len in 0..good.len() {
        assert!(decode(1, 0, &good[..len]).is_err(), "{len}");
    }
    assert!(decode(1, 0, &[&good[..], &[0]].concat()).is_err());
}

#[test]
fn endless_nesting_is_refused() {
    let mut deep = DType::U8;
    while let Ok(deeper) =
        DType::new(TypeClass::SubArray { shape: vec![1], base: Box::new(deep.clone()) }, ByteOrder::None, 1)
    {
        deep = deeper;
    }
    let descriptor = Descriptor::array(deep.clone(), &[1], Order::RowMajor).unwrap();
    assert_eq!(decode(1, 0, &encode(&descriptor)), Ok(descriptor));
    let mut bytes = Vec::new();
    encode_type(&deep, &mut bytes);
    let mut head = vec![12, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    head.extend(1u64.to_le_bytes());
    head.extend(bytes);
    assert_eq!(decode_type(&mut Input(&head), 0), None);
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(kind in 0u32..5, meta in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(kind, 0, &meta);
    }

    /// A changed byte is refused, or it is another valid description whose bytes are exactly these.
    #[test]
    fn any_changed_byte_is_seen(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut meta = encode(&Descriptor::array(nested(), &[2, 3], Order::RowMajor).unwrap());
        let at = at.index(meta.len());
        meta[at] ^= flip;
        if let Ok(other) = decode(1, 0, &meta) {
            prop_assert_eq!(encode(&other), meta);
        }
    }
}

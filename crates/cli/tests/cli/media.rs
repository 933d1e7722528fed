//! Media that fail and media that are full.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use pmem::{ErrorCode, OpenMode};

use crate::harness::{Place, finish, put, start};

const SUPERBLOCK_AT: [u32; 2] = [0, 1 << 20];
const SUPERBLOCK_BYTES: u32 = 4096;

/// One instruction of a seccomp filter (seccomp(2), linux/filter.h).
fn instruction(code: u32, k: u32, skip_if: u8, skip_else: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: skip_if, jf: skip_else, k }
}

/// Lets everything pass but reads of a superblock at these offsets, which end with EIO as reads of a bad block do.
fn filter(bad: &[u32]) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // In seccomp_data the number of the call comes first, and the lower halves of the arguments from byte 16 on.
    let argument = |number: u32| 16 + 8 * number;
    let is_not = |value, skip| instruction(EQUAL, value, 0, skip);
    let offsets = bad.len() as u8;
    let mut program = vec![
        instruction(LOAD, 0, 0, 0),
        is_not(libc::SYS_pread64 as u32, 3 + offsets),
        instruction(LOAD, argument(2), 0, 0),
        is_not(SUPERBLOCK_BYTES, 1 + offsets),
        instruction(LOAD, argument(3), 0, 0),
    ];
    for (number, &offset) in bad.iter().enumerate() {
        program.push(instruction(EQUAL, offset, offsets - number as u8, 0));
    }
    program.push(instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::EIO as u32, 0, 0));
    program
}

/// The command on a medium that has lost these superblocks.
fn on_bad_blocks(place: &Place, arguments: &[&str], bad: &[u32]) -> Command {
    let mut command = place.command(arguments);
    let mut program = filter(bad);
    let install = move || {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: between fork and exec; both calls only read their arguments, which outlive them.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
        };
        if installed { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(install) };
    command
}

#[test]
fn a_bad_block_in_both_superblocks() {
    let place = Place::new();
    place.pool_with_names("a");
    let witness = place.witness("a", OpenMode::Reader);
    for command in
        [&["pool", "info", "a"][..], &["pool", "ls", "a"], &["pool", "compact", "a"], &["pool", "rm", "a", "-y"]]
    {
        place.refused_by(|| on_bad_blocks(&place, command, &SUPERBLOCK_AT), ErrorCode::BadBlock);
        witness.sees_the_same();
    }
}

/// One copy is what the other is for; the check says what is lost, and where.
#[test]
fn a_bad_block_in_one_superblock() {
    for bad in SUPERBLOCK_AT {
        let place = Place::new();
        place.pool_with_names("a");
        let witness = place.witness("a", OpenMode::Reader);
        let before = place.snapshot();
        assert_eq!(finish(start(&mut on_bad_blocks(&place, &["pool", "info", "a"], &[bad]))).exit, 0);
        let ran = finish(start(&mut on_bad_blocks(&place, &["pool", "check", "a", "--json"], &[bad])));
        assert_eq!(ran.exit, 3, "{}", ran.stderr);
        let finding = &ran.result("remanent.pool.check/1")["findings"][0];
        assert_eq!((&finding["error"], &finding["offset_bytes"]), (&"bad-block".into(), &bad.into()), "{finding}");
        assert_eq!(place.snapshot(), before);
        witness.sees_the_same();
    }
}

/// The log's spare is set aside in advance, so no command of these meets `pool-full`.
#[test]
fn a_full_pool_is_compacted_and_grown() {
    let place = Place::new();
    place.pool_with_names("a");
    let writer = place.writer("a");
    let mut number = 0;
    while writer.info().largest_free_bytes > 0 {
        number += 1;
        let len_bytes = writer.info().largest_free_bytes.min(1 << 20);
        put(&writer, &format!("filler {number}"), 1, len_bytes as usize);
    }
    writer.close().unwrap();
    let witness = place.witness("a", OpenMode::Reader);
    assert_eq!(place.done(&["pool", "compact", "a"]).stdout, "compacted a: 0 B free\n");
    place.done(&["pool", "grow", "a", "--size", "4MiB"]);
    place.done(&["pool", "compact", "a"]);
    assert!(place.done(&["pool", "check", "a"]).stdout.contains("a: sound ("));
    witness.sees_the_same();
}

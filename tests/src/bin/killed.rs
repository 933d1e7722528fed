//! The program that the kill campaign starts and kills.

fn main() {
    remanent_tests::kill::roles::main();
}

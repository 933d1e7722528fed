//! A hostile plan: it is refused with its place, or its cells can be told, and what they need.

use bench::plan::Plan;

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let plan = match Plan::parse("plan.yaml", text) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(error.to_string().starts_with("plan.yaml:"), "{error}");
            return;
        }
    };
    let Ok(cells) = plan.cells() else { return };
    for cell in cells.iter().take(64) {
        assert!(cell.to_string().starts_with(cell.measure.as_str()));
    }
}

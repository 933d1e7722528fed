//! Mutations: take one flush, fence, copy or store order away, and see whether the suite notices.

use crate::trace::{Call, Site};

/// One deliberate mistake at one place of the source.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// The call that is made wrong.
    pub call: Call,
    /// Where it stands.
    pub site: Site,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// Not made at all.
    Drop,
    /// Made after the next fence.
    Delay,
}

impl Mutation {
    pub(crate) fn verdict(&self, call: Call, site: Site) -> Verdict {
        if call != self.call || site != self.site {
            return Verdict::Keep;
        }
        match call {
            Call::Store => Verdict::Delay,
            _ => Verdict::Drop,
        }
    }
}

impl std::fmt::Display for Mutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.call {
            Call::Store => "store made after the next fence",
            Call::NtCopy => "non-temporal copy made with plain stores",
            Call::Flush => "flush left out",
            Call::Fence => "fence left out",
            Call::Sync => "msync left out",
            Call::Fsync => "fsync left out",
            Call::SyncDir => "directory sync left out",
        };
        write!(f, "{what} at {}", self.site)
    }
}

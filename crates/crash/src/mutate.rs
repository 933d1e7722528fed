//! Mutations: take a flush, fence, copy or store order away or weaken it, and see whether the suite notices.

use crate::trace::{Call, Site};

/// One deliberate mistake at one place of the source.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    call: Call,
    site: Site,
    mistake: Mistake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The call is not made; a store is made after the next fence, a non-temporal copy with plain stores.
    Omitted,
    /// A fence or msync answers for all that it should but the last line or sector.
    Weak,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep,
    /// Not made at all.
    Drop,
    /// Made after the next fence.
    Delay,
    /// Made, for all but the last unit.
    Weaken,
}

impl Mutation {
    /// Every mistake that can be made at a call. Names are no matter of mistakes but of their directory's sync.
    pub fn of(call: Call, site: Site) -> impl Iterator<Item = Mutation> {
        let mistakes: &[Mistake] = match call {
            Call::Create | Call::Rename | Call::Remove => &[],
            Call::Fence | Call::Sync => &[Mistake::Omitted, Mistake::Weak],
            Call::Store | Call::NtCopy | Call::Flush | Call::Fsync | Call::SyncDir => &[Mistake::Omitted],
        };
        mistakes.iter().map(move |&mistake| Mutation { call, site, mistake })
    }

    /// Where the mistake is made.
    pub fn site(&self) -> Site {
        self.site
    }

    /// The call that is made wrong.
    pub fn call(&self) -> Call {
        self.call
    }

    pub(crate) fn verdict(&self, call: Call, site: Site) -> Verdict {
        if call != self.call || site != self.site {
            return Verdict::Keep;
        }
        match (call, self.mistake) {
            (_, Mistake::Weak) => Verdict::Weaken,
            (Call::Store, Mistake::Omitted) => Verdict::Delay,
            (_, Mistake::Omitted) => Verdict::Drop,
        }
    }
}

impl std::fmt::Display for Mutation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match (self.call, self.mistake) {
            (Call::Fence, Mistake::Weak) => "fence weakened by a line",
            (Call::Sync, Mistake::Weak) => "msync weakened by a sector",
            (Call::Store, _) => "store made after the next fence",
            (Call::NtCopy, _) => "non-temporal copy made with plain stores",
            (call, _) => return write!(f, "{} left out at {}", call.as_str(), self.site),
        };
        write!(f, "{what} at {}", self.site)
    }
}

//! The names that plans and results have for the variants of a type, in one place for both ways.

/// Gives a type `ALL` and `NAMES`, in one order, and the two ways between them. What only some kinds of CPUs have is in
/// both on these alone, and has its name everywhere.
macro_rules! names {
    ($type:ident { $($(#[$only:meta])* $variant:ident = $name:literal),* $(,)? }) => {
        impl $type {
            /// All of them.
            pub const ALL: [$type; [$($(#[$only])* $name),*].len()] = [$($(#[$only])* $type::$variant),*];
            /// Their names in plans and results.
            pub const NAMES: [&'static str; [$($(#[$only])* $name),*].len()] = [$($(#[$only])* $name),*];

            /// The name in plans and results.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            /// What has this name.
            ///
            /// # Panics
            /// If nothing has it: a plan has checked it.
            pub(crate) fn named(name: &str) -> $type {
                match name {
                    $($name => $type::$variant,)*
                    _ => panic!("nothing is called {name}"),
                }
            }
        }
    };
}

/// As [`names`], of instructions: `KNOWN` has the names on all kinds of CPUs.
macro_rules! instructions {
    ($type:ident { $($(#[$only:meta])* $variant:ident = $name:literal),* $(,)? }) => {
        names!($type { $($(#[$only])* $variant = $name),* });

        impl $type {
            /// The names of those of every kind of CPU.
            pub const KNOWN: [&'static str; [$($name),*].len()] = [$($name),*];
            /// What a key of a plan is that names one.
            pub(crate) const FORM: $crate::measure::Form =
                $crate::measure::Form::Instruction { here: &Self::NAMES, known: &Self::KNOWN };
        }
    };
}

pub(crate) use {instructions, names};

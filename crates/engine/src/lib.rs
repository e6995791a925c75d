//! The happens-before engine.
mod finding;
mod rules;
pub use finding::{AllocationFacts, BlindSpot, EventFacts, Finding, Role, Summary};
pub use rules::{Level, Levels, RULES, Rule, RuleCode};

use streamcheck_model::{MemoryKind, Names, Operation};

/// Checks a stream of operations.
pub struct Engine {
    names: Names,
}

impl Engine {
    /// An engine that knows nothing yet. `names` are those that operations use.
    #[must_use]
    pub fn new(_levels: Levels) -> Self {
        Self {
            names: Names::default(),
        }
    }

    /// The names that operations refer to.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// For interning the names that the next operations refer to.
    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    /// Takes in what happened and returns the findings that are new.
    pub fn apply(&mut self, _operation: &Operation) -> Vec<Finding> {
        Vec::new()
    }

    /// How often each finding was made, by its number.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &[]
    }

    /// What was seen so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary::default()
    }

    /// The kind of the live memory at `address`, if the engine knows any there.
    #[must_use]
    pub fn memory_kind(&self, _address: u64) -> Option<MemoryKind> {
        None
    }
}

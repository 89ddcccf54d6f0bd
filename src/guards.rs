//! Guards against a crash, a late watch and a lost reply. The fault plans of `kinds/model` take one away at a time, and one of the
//! plans has to notice. Outside tests each of them always holds. Guards that a unit test can miss need no word here: `make mutants` takes them away.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A WindowsMachine has our finalizer before its VM is made.
    MachineFinalizer,
    /// A WindowsBootstrapConfig has our finalizer before its token is made.
    ConfigFinalizer,
    /// A token of ours that is there already is used.
    FoundToken,
    /// A configuration goes after its token.
    TokenBeforeFinalizer,
    /// That a token is gone is reported after its deletion.
    TokenBeforeReport,
    /// A WindowsMachine goes after proof that its VM is gone.
    ProofOfAbsence,
    /// The machines of a pool that no watch has shown yet are counted.
    MadeMachines,
    /// A create without answer is tried again with the same name.
    UnansweredNames,
}

impl Guard {
    #[cfg(not(test))]
    pub const fn holds(self) -> bool {
        true
    }

    #[cfg(test)]
    pub fn holds(self) -> bool {
        TAKEN.get() != Some(self)
    }

    /// Runs `test`, which stays on this thread, without the guard.
    #[cfg(test)]
    pub fn without<T>(self, test: impl FnOnce() -> T + std::panic::UnwindSafe) -> std::thread::Result<T> {
        TAKEN.set(Some(self));
        let done = std::panic::catch_unwind(test);
        TAKEN.set(None);
        done
    }
}

#[cfg(test)]
thread_local! {
    static TAKEN: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}

//! Evidence of subvolumes.

evidence! {
    /// What is wrong with the names and the identity of subvolumes.
    SubvolumeEvidence {
        RootReference => NoBackReference { parent: u64 }
            "its reference in {parent} has no equal back reference";
        RootReference => NoReference { parent: u64 }
            "its back reference in {parent} has no equal reference";
        RootReferenceDangling => NamesNone { subvolume: u64 }
            "it names subvolume {subvolume}, which is not one";
        RootReferenceDangling => InNoSubvolume { subvolume: u64 }
            "subvolume {subvolume} is said to lie in it, and it is no subvolume";
        RootReferenceDangling => OtherEntry { index: u64, subvolume: u64 }
            "entry {index} does not name subvolume {subvolume}";
        OrphanMissing => NotListedForDeletion
            "the subvolume is deleted and not listed for deletion";
        SubvolumeUnnamed => Unnamed "no other subvolume names it";
        UuidTree => ListsOther { subvolume: u64 }
            "it lists subvolume {subvolume}, which has another uuid or does not exist";
        UuidTree => Lacks { subvolume: u64 } "it does not list subvolume {subvolume}";
    }
}

//! Requests that a store passes on as they are.

/// The requests that a [`Store`](crate::Store) passes on as they are to another one, which a field of
/// it holds. A store that treats all requests alike is a [`Layer`](crate::Layer).
///
/// ```
/// use larder_objects::{Problem, Store, StoreError, pass_on};
///
/// /// A store in which nothing is deleted.
/// #[derive(Debug)]
/// struct KeepsAll<S> {
///     store: S,
/// }
///
/// impl<S: Store> Store for KeepsAll<S> {
///     pass_on!(store: name, get, get_versioned, try_create, try_replace, list);
///
///     fn delete(&self, name: &str) -> Result<(), StoreError> {
///         let source = "it keeps all".into();
///         Err(StoreError { problem: Problem::Denied, object: name.to_owned(), source })
///     }
/// }
/// ```
#[macro_export]
macro_rules! pass_on {
    ($store:tt: $($request:ident),+) => {
        $($crate::pass_on! { @$request $store })+
    };
    (@name $store:tt) => {
        fn name(&self) -> &str {
            self.$store.name()
        }
    };
    (@get $store:tt) => {
        fn get(
            &self,
            name: &str,
            range: ::std::ops::Range<u64>,
        ) -> ::std::result::Result<::bytes::Bytes, $crate::StoreError> {
            self.$store.get(name, range)
        }
    };
    (@get_versioned $store:tt) => {
        fn get_versioned(
            &self,
            name: &str,
        ) -> ::std::result::Result<$crate::Versioned, $crate::StoreError> {
            self.$store.get_versioned(name)
        }
    };
    (@try_create $store:tt) => {
        fn try_create(
            &self,
            name: &str,
            content: ::bytes::Bytes,
        ) -> ::std::result::Result<(), $crate::StoreError> {
            self.$store.try_create(name, content)
        }
    };
    (@try_replace $store:tt) => {
        fn try_replace(
            &self,
            name: &str,
            content: ::bytes::Bytes,
            version: &$crate::Version,
        ) -> ::std::result::Result<$crate::Version, $crate::StoreError> {
            self.$store.try_replace(name, content, version)
        }
    };
    (@mend $store:tt) => {
        fn mend(
            &self,
            name: &str,
            content: ::bytes::Bytes,
        ) -> ::std::result::Result<(), $crate::StoreError> {
            self.$store.mend(name, content)
        }
    };
    (@delete $store:tt) => {
        fn delete(&self, name: &str) -> ::std::result::Result<(), $crate::StoreError> {
            self.$store.delete(name)
        }
    };
    (@list $store:tt) => {
        fn list(
            &self,
            prefix: &str,
        ) -> ::std::result::Result<::std::vec::Vec<$crate::Listed>, $crate::StoreError> {
            self.$store.list(prefix)
        }
    };
    (@trouble $store:tt) => {
        fn trouble(&self) -> ::std::option::Option<::std::string::String> {
            self.$store.trouble()
        }
    };
    (@have_patience_for $store:tt) => {
        fn have_patience_for(&self, time: ::std::time::Duration) {
            self.$store.have_patience_for(time);
        }
    };
    (@timer $store:tt) => {
        fn timer(&self) -> $crate::Timer {
            self.$store.timer()
        }
    };
    (@watch $store:tt) => {
        fn watch(&self) -> ::std::option::Option<$crate::Watch> {
            self.$store.watch()
        }
    };
}

pub(crate) use pass_on;

//! The macro that makes a table of operations: the enumeration of their numbers, their arguments,
//! their results, and a marker type for each, so that a client names the result that it expects.

use crate::{Bitmap, Status, Wire};

/// The result of an operation: a status, and what depends on it.
pub trait Outcome {
    /// The status on the wire.
    fn status(&self) -> Status;

    /// A failure of which nothing but the status is known. Not for a status with content of its
    /// own, such as the lock that is in the way of NFS4ERR_DENIED.
    fn failed(status: Status) -> Self;
}

impl<S> Outcome for Result<S, Status> {
    fn status(&self) -> Status {
        self.as_ref().err().copied().unwrap_or(Status::OK)
    }

    fn failed(status: Status) -> Self {
        Err(status)
    }
}

impl Outcome for crate::op::getattr::SetReply {
    fn status(&self) -> Status {
        self.status
    }

    fn failed(status: Status) -> Self {
        Self { status, set: Bitmap::EMPTY }
    }
}

impl<S> Outcome for crate::op::lock::Outcome<'_, S> {
    fn status(&self) -> Status {
        self.status()
    }

    fn failed(status: Status) -> Self {
        debug_assert!(status != Status::DENIED, "a denied lock says which lock is in the way");
        Self::Failed(status)
    }
}

impl Outcome for crate::op::copy::Reply {
    fn status(&self) -> Status {
        self.status()
    }

    fn failed(status: Status) -> Self {
        debug_assert!(status != Status::OFFLOAD_NO_REQS, "says what the server can do");
        Self::Failed(status)
    }
}

impl Outcome for crate::op::layout::DeviceReply<'_> {
    fn status(&self) -> Status {
        self.status()
    }

    fn failed(status: Status) -> Self {
        debug_assert!(status != Status::TOOSMALL, "says how many bytes are needed");
        Self::Failed(status)
    }
}

impl Outcome for crate::op::layout::GetReply<'_> {
    fn status(&self) -> Status {
        self.status()
    }

    fn failed(status: Status) -> Self {
        match status {
            Status::LAYOUTTRYLATER => Self::TryLater(false),
            status => Self::Failed(status),
        }
    }
}

/// The operations of one direction: those that clients ask of servers, or callbacks.
pub trait Family {
    /// The numbers.
    type Operation: Copy + PartialEq + std::fmt::Debug;
    /// The arguments of any operation.
    type Args<'a>;
    /// The result of any operation.
    type Reply<'a>;

    /// Whether `CB_COMPOUND4args` or `COMPOUND4args` begins a request: the former has a number
    /// more.
    const IS_CALLBACK: bool;

    /// The operation of a number, if the minor version has it.
    fn lookup(number: u32, minor: u32) -> Option<Self::Operation>;

    /// The number of an operation.
    fn number(operation: Self::Operation) -> u32;

    /// Decodes arguments; `None` if this crate has no type for them.
    ///
    /// # Errors
    /// Arguments that do not decode.
    fn decode_args<'a>(
        operation: Self::Operation,
        reader: &mut xdr::Reader<'a>,
    ) -> xdr::Result<Option<Self::Args<'a>>>;

    /// The operation of arguments.
    fn operation_of_args(args: &Self::Args<'_>) -> Self::Operation;

    /// Writes arguments.
    fn encode_args(args: &Self::Args<'_>, writer: &mut xdr::Writer<'_>);

    /// How many bytes of payload follow these arguments, if any do.
    fn args_payload(args: &Self::Args<'_>) -> Option<u32>;

    /// Decodes a result; `None` if this crate has no type for it.
    ///
    /// # Errors
    /// A result that does not decode.
    fn decode_reply<'a>(
        operation: Self::Operation,
        reader: &mut xdr::Reader<'a>,
    ) -> xdr::Result<Option<Self::Reply<'a>>>;

    /// The operation of a result.
    fn operation_of_reply(reply: &Self::Reply<'_>) -> Self::Operation;

    /// Writes a result.
    fn encode_reply(reply: &Self::Reply<'_>, writer: &mut xdr::Writer<'_>);

    /// The status of a result.
    fn status(reply: &Self::Reply<'_>) -> Status;

    /// Writes a failure of which nothing but the status is known.
    fn encode_failure(operation: Self::Operation, status: Status, writer: &mut xdr::Writer<'_>);

    /// How many bytes of payload follow this result, if any do.
    fn reply_payload(reply: &Self::Reply<'_>) -> Option<u32>;
}

/// One operation as a type. RFC 8881 s16.2.4
pub trait Kind {
    /// The direction.
    type Family: Family;
    /// The arguments.
    type Args<'a>: Wire<'a>;
    /// The result.
    type Reply<'a>: Wire<'a> + Outcome;

    /// The operation.
    const OPERATION: <Self::Family as Family>::Operation;
}

macro_rules! operations {
    (
        $(#[$enum_doc:meta])* $Operation:ident of $Family:ident;
        decoded { $($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $minor:literal,
            $class:ident, $effect:ident, [$args:ty], [$reply:ty];)+ }
        known { $($(#[$known_doc:meta])* $known:ident = $known_number:literal, $known_name:literal,
            $known_minor:literal, $known_class:ident, $known_effect:ident;)* }
        helpers { args_payload: $args_payload:path, reply_payload: $reply_payload:path,
            is_callback: $is_callback:literal }
    ) => {
        $(#[$enum_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $Operation {
            $($(#[$doc])* $variant = $number,)+
            $($(#[$known_doc])* $known = $known_number,)*
        }

        impl $Operation {
            /// All operations.
            pub const ALL: &[Self] = &[$(Self::$variant,)+ $(Self::$known,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// The operation's row of the table.
            #[must_use]
            pub const fn description(self) -> $crate::Description {
                match self {
                    $(Self::$variant => $crate::Description {
                        name: $name,
                        minor: $minor,
                        class: $crate::Class::$class,
                        effect: $crate::Effect::$effect,
                        is_decoded: true,
                    },)+
                    $(Self::$known => $crate::Description {
                        name: $known_name,
                        minor: $known_minor,
                        class: $crate::Class::$known_class,
                        effect: $crate::Effect::$known_effect,
                        is_decoded: false,
                    },)*
                }
            }

            /// The name in the standards.
            #[must_use]
            pub const fn name(self) -> &'static str {
                self.description().name
            }

            /// The operation of a number, if this minor version has it; otherwise the answer is
            /// OP_ILLEGAL. RFC 8881 s18.52
            #[must_use]
            pub fn of(number: u32, minor: u32) -> Option<Self> {
                let operation = match number {
                    $($number => Self::$variant,)+
                    $($known_number => Self::$known,)*
                    _ => return None,
                };
                (operation.description().minor <= minor).then_some(operation)
            }
        }

        /// The arguments of an operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Args<'a> {
            $($(#[$doc])* $variant($args),)+
        }

        /// The result of an operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reply<'a> {
            $($(#[$doc])* $variant($reply),)+
        }

        impl Args<'_> {
            /// Which operation's arguments these are.
            #[must_use]
            pub const fn operation(&self) -> $Operation {
                match self {
                    $(Self::$variant(_) => $Operation::$variant,)+
                }
            }
        }

        impl Reply<'_> {
            /// Which operation's result this is.
            #[must_use]
            pub const fn operation(&self) -> $Operation {
                match self {
                    $(Self::$variant(_) => $Operation::$variant,)+
                }
            }

            /// The status on the wire.
            #[must_use]
            pub fn status(&self) -> $crate::Status {
                match self {
                    $(Self::$variant(reply) => $crate::table::Outcome::status(reply),)+
                }
            }
        }

        /// Each operation as a type, by which a client names the result that it expects.
        pub mod kind {
            use super::*;
            $(
                $(#[$doc])*
                #[derive(Debug)]
                pub enum $variant {}

                impl $crate::table::Kind for $variant {
                    type Family = $Family;
                    type Args<'a> = $args;
                    type Reply<'a> = $reply;

                    const OPERATION: $Operation = $Operation::$variant;
                }
            )+
        }

        /// The operations of this direction.
        #[derive(Debug, Clone, Copy)]
        pub enum $Family {}

        impl $crate::table::Family for $Family {
            type Operation = $Operation;
            type Args<'a> = Args<'a>;
            type Reply<'a> = Reply<'a>;

            const IS_CALLBACK: bool = $is_callback;

            fn lookup(number: u32, minor: u32) -> Option<$Operation> {
                $Operation::of(number, minor)
            }

            fn number(operation: $Operation) -> u32 {
                operation.number()
            }

            fn decode_args<'a>(
                operation: $Operation,
                reader: &mut xdr::Reader<'a>,
            ) -> xdr::Result<Option<Args<'a>>> {
                match operation {
                    $($Operation::$variant =>
                        $crate::Wire::decode(reader).map(|args| Some(Args::$variant(args))),)+
                    $($Operation::$known => Ok(None),)*
                }
            }

            fn operation_of_args(args: &Args<'_>) -> $Operation {
                args.operation()
            }

            fn encode_args(args: &Args<'_>, writer: &mut xdr::Writer<'_>) {
                match args {
                    $(Args::$variant(args) => $crate::Wire::encode(args, writer),)+
                }
            }

            fn args_payload(args: &Args<'_>) -> Option<u32> {
                $args_payload(args)
            }

            fn decode_reply<'a>(
                operation: $Operation,
                reader: &mut xdr::Reader<'a>,
            ) -> xdr::Result<Option<Reply<'a>>> {
                match operation {
                    $($Operation::$variant =>
                        $crate::Wire::decode(reader).map(|reply| Some(Reply::$variant(reply))),)+
                    $($Operation::$known => Ok(None),)*
                }
            }

            fn operation_of_reply(reply: &Reply<'_>) -> $Operation {
                reply.operation()
            }

            fn encode_reply(reply: &Reply<'_>, writer: &mut xdr::Writer<'_>) {
                match reply {
                    $(Reply::$variant(reply) => $crate::Wire::encode(reply, writer),)+
                }
            }

            fn status(reply: &Reply<'_>) -> $crate::Status {
                reply.status()
            }

            fn encode_failure(
                operation: $Operation,
                status: $crate::Status,
                writer: &mut xdr::Writer<'_>,
            ) {
                match operation {
                    $($Operation::$variant => $crate::Wire::encode(
                        &<kind::$variant as $crate::table::Kind>::Reply::failed(status), writer),)+
                    $($Operation::$known => $crate::Wire::encode(&status, writer),)*
                }
            }

            fn reply_payload(reply: &Reply<'_>) -> Option<u32> {
                $reply_payload(reply)
            }
        }
    };
}

pub(crate) use operations;

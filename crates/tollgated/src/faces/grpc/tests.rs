//! The gRPC door without sockets, its time in hand.

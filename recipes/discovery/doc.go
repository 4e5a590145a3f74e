// Package discovery registers and finds services, in the layout of Apache Curator's service
// discovery, so that programs in Go and Java can find each other.
//
// # Guarantees
//
// A [Registration] maintains the znode of its instance until it is closed: the znode is
// created again if the session has expired, if another client has deleted it, or if the
// node of the service was removed. It never adopts or changes a znode of another session,
// but waits until that znode is removed. Close reliably removes the registered znode, even
// if its creation was in flight.
//
// A [Provider] keeps the instances of a service in memory. When the connection is up and
// nothing changes any more, its list is equal to the tree; changes during a loss of the
// connection or the session are not missed. An instance whose data cannot be read is
// reported and omitted, and does not affect the others.
//
// # Limits
//
// A list is as recent as the last notification. The znode of a process that has died
// remains until its session times out, and a client without a connection keeps its last
// list. Callers must therefore expect that an instance does not respond; [Provider.Report]
// excludes such an instance for some time.
//
// A registration indicates that a session exists. It is not a lock: the znode of a lost
// session, and the process that has lost it, can exist at the same time as a new
// registration elsewhere.
//
// # Znodes
//
//	<base>                 container
//	<base>/<name>          container: a service
//	<base>/<name>/<id>     an instance: JSON; ephemeral if its type is Dynamic
//
// The root as base, which Curator allows, is not supported. There is one watch for the
// service and one for each instance. An instance is read again when it changes, and all
// instances are read again after each loss of the connection. This is suitable for some
// hundred instances of a service, but not for tens of thousands.
package discovery

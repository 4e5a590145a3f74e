// Package discovery registers services and finds them, in the layout of Apache
// Curator's service discovery: programs in Go and Java find each other.
//
// # What is guaranteed
//
// A [Registration] keeps its znode in place until it is closed: it is created again
// when the session was lost, when somebody has deleted it, and when its service's
// node has gone. A znode of another session is never taken for one's own and never
// touched: whoever finds the place taken waits until that one goes. Close removes
// what was registered for certain, also if a create was under way.
//
// A [Provider] has the instances in memory. Once the connection is up and nothing
// changes any more, its list is what the tree holds; a change during a break of the
// connection, or while the session was lost, is not missed. An instance whose data
// cannot be read is told and left out; it does not keep the others back.
//
// # What is not
//
// A list is never fresher than the last event. The znode of a process that has died
// stays until its session times out, and a client without a connection goes on with
// what it has seen last. So whoever calls an instance must expect that it is not
// there: [Provider.Report] takes it out for a while.
//
// A registration says that a session lives. It is no lock: for a moment the znode of
// a session that is lost and the process that has lost it can both be there.
//
// # Znodes
//
//	<base>                 persistent
//	<base>/<name>          container: a service
//	<base>/<name>/<id>     an instance: JSON; ephemeral if its type is Dynamic
//
// A base that is the root, as Curator allows it, is not supported. There is one watch
// for the service and one for each instance; every instance is read again when it
// changes, and all are asked for anew after each break of the connection. That is
// made for some hundred instances of a service, not for ten thousands.
package discovery

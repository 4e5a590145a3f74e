// Package store is for authors of stores: types that implement changefeed.Store with a database. It
// contains everything that stores have in common, so that a store is only three operations of its
// database: it reads the record, it replaces the record by a compare-and-set, and it reports changes of
// the record. The example of this package is a complete store, for a database that must be polled; the
// documentation of [WatchFunc] contains a watch of a database that notifies its clients.
//
//   - [Feeds] implements feeds with a [WatchFunc], which blocks and reports changes. [Poll] is for
//     databases that cannot notify clients.
//   - [Runner] runs the operations. They end when the store is closed, and their errors name the
//     operation and the server, and wrap the corresponding error of package changefeed.
//   - [Encode] and [Decode] encode records as JSON, for databases that keep bytes. Users can read it with
//     the tools of the database. [Document] is for databases that have documents or rows, and
//     [EncodeMessage] for messages that the database sends to its clients with each write.
//   - [CheckText], [ApplyOptions], [SetQuietTime] and [SetServers] check the arguments of the
//     constructor. Their errors wrap leaderelection.ErrInvalid.
//   - [AcceptedRisks] is for stores that can lose acknowledged writes in some deployments: Start
//     finds these, and the user must accept them by name.
//
// Package storetest tests whether a store satisfies the contract.
package store

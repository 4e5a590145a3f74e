// Package changefeed holds elections in any store that can compare and set one record
// and tell of its changes: the leader's heartbeat is a write to the record, and the
// others follow by the store's feed.
package changefeed

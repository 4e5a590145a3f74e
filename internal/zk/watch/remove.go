package watch

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// OnData reports whether the connection has a watch on the data of a znode, or a read in progress
// that may set one. A call of Read whose context is done sets no watch.
func OnData(conn *zk.Conn, path string) bool {
	p, k := pools.Of(conn), key{path, data}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(k) != nil || p.reads[k] != nil
}

// RemoveFromData removes the watch on the data of a znode, unless mayWrite returns false. The client
// library cannot remove a watch, so RemoveFromData writes the same data again. That fires the watches
// of all clients, and each of their readers reads again. RemoveFromData retries after transient
// failures. If the znode has changed since it was read, the watch has fired.
func RemoveFromData(ctx context.Context, conn *zk.Conn, path string, mayWrite func(Found) bool) error {
	sub := connection.Subscribe(conn, 0)
	defer sub.Close()
	err := connection.Retry(ctx, conn, func() error {
		// A request in progress that may set the watch is answered before this read, and a watch in
		// doubt is set again, so that it fires.
		found, err := Try(conn, Query{Path: path, What: Data, Epoch: sub.State().Epoch, Reset: true})
		if err == nil && mayWrite(found) {
			_, err = conn.Set(path, found.Data, found.Stat.Version)
		}
		return err
	})
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

package connection

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"
)

// Verify looks for lost watches of a connection until the context is done. It calls notify if it
// has found some. Package watch sets it before any connection is monitored: it depends on this
// package.
var Verify func(ctx context.Context, conn *zk.Conn, notify func())

// verify runs Verify while the goroutine of the monitor runs. The returned function waits for its
// end, after the context of the monitor is done.
func (m *monitor) verify() (wait func()) {
	var running sync.WaitGroup
	if conn := m.conn; Verify != nil {
		running.Go(func() {
			Verify(m.ctx, conn, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.notifyAll()
			})
		})
	}
	return running.Wait
}

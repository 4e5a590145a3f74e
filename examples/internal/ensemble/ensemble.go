// Package ensemble gives the examples a ZooKeeper: the user's, or a server inside of
// the program.
package ensemble

import (
	"log/slog"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Ensemble is where an example connects to.
type Ensemble struct {
	servers  []string
	embedded *zktest.Server
	conns    []*zk.Conn
}

// Open uses the servers "host:port,...", or starts one inside of this program where
// there are none.
func Open(servers string) (*Ensemble, error) {
	if servers != "" {
		return &Ensemble{servers: strings.Split(servers, ",")}, nil
	}
	embedded, err := zktest.New()
	return &Ensemble{embedded: embedded}, err
}

// Connect opens a session of its own, as another process would have it.
func (e *Ensemble) Connect() (conn *zk.Conn, err error) {
	if e.embedded != nil {
		conn, _, err = e.embedded.Connect(4 * time.Second)
	} else {
		conn, _, err = zkdial.Connect(e.servers, 4*time.Second, zkdial.WithLogger(slog.Default()))
	}
	if err == nil {
		e.conns = append(e.conns, conn)
	}
	return conn, err
}

// Expire ends a session behind its client's back, which only the embedded server can
// do; it reports whether that was done.
func (e *Ensemble) Expire(conn *zk.Conn) bool {
	return e.embedded != nil && e.embedded.ExpireSession(conn.SessionID()) == nil
}

// Close closes all connections, and the embedded server.
func (e *Ensemble) Close() {
	for _, conn := range e.conns {
		conn.Close()
	}
	if e.embedded != nil {
		e.embedded.Close()
	}
}

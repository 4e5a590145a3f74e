// Package ensemble connects the examples to the ZooKeeper of the user, or to an embedded server.
package ensemble

import (
	"log/slog"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zkdial"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// Ensemble is the ZooKeeper of an example.
type Ensemble struct {
	servers  []string       // of the user
	embedded *zktest.Server // nil if the user has servers
	conns    []*zk.Conn
}

// Open returns the servers "host:port,...". If servers is empty, it starts an embedded server.
func Open(servers string) (*Ensemble, error) {
	if servers != "" {
		return &Ensemble{servers: strings.Split(servers, ",")}, nil
	}
	embedded, err := zktest.New()
	return &Ensemble{embedded: embedded}, err
}

// Connect opens a new session, as another process would.
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

// Expire expires the session of a connection, and reports whether it did: only the embedded server
// can do that.
func (e *Ensemble) Expire(conn *zk.Conn) bool {
	return e.embedded != nil && e.embedded.ExpireSession(conn.SessionID()) == nil
}

// Close closes all connections and the embedded server.
func (e *Ensemble) Close() {
	for _, conn := range e.conns {
		conn.Close()
	}
	if e.embedded != nil {
		e.embedded.Close()
	}
}

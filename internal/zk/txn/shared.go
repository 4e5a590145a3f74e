package txn

import (
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
)

// sharedPrefix begins the names of the records of shared writers.
const sharedPrefix = "_r_"

// sharedWriters are the shared writers of one connection.
type sharedWriters struct {
	mu    sync.Mutex
	byKey map[string]*Writer // by directory and ACL
}

var sharedByConn = connection.NewMap(func(*zk.Conn) *sharedWriters {
	return &sharedWriters{byKey: map[string]*Writer{}}
})

// Shared returns the Writer of a connection for a directory. It is for recipes whose handles are
// not closed: with a record for each handle, the number of records would only grow. The Writer
// must not be closed, and does not create the directory. Its record is deleted with the session.
func Shared(cfg Config) *Writer {
	s := sharedByConn.Of(cfg.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(cfg.Dir, " ", cfg.ACL)
	w := s.byKey[key]
	if w == nil {
		cfg.Prefix = sharedPrefix
		w = New(cfg)
		s.byKey[key] = w
	}
	return w
}

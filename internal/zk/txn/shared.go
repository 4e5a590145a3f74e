package txn

import (
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
)

// sharedPrefix begins the names of the registers of shared writers.
const sharedPrefix = "_r_"

// writers are the shared writers of a connection, by directory and ACL.
type writers struct {
	mu    sync.Mutex
	byDir map[string]*Writer
}

var shared = perconn.NewMap(func(*zk.Conn) *writers { return &writers{byDir: map[string]*Writer{}} })

// Shared returns the Writer of a connection for a directory, for recipes whose handles are not
// closed: a register for each handle would fill the ensemble. It must not be closed, and it does
// not create the directory. The register is deleted with the session.
func Shared(cfg Config) *Writer {
	s := shared.Of(cfg.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprint(cfg.Dir, " ", cfg.ACL)
	w := s.byDir[key]
	if w == nil {
		cfg.Prefix = sharedPrefix
		w = New(cfg)
		s.byDir[key] = w
	}
	return w
}

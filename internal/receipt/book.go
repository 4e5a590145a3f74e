package receipt

import (
	"crypto/rand"
	"path"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/perconn"
)

// book is what is known of the receipt of one connection below one znode. The name
// stays the same over sessions. Whoever holds the turn may use the rest.
type book struct {
	turn    chan struct{} // capacity 1
	path    string
	exists  bool // as far as is known
	version int32
}

// books are kept for as long as their connection, which does not know them: nobody
// closes a counter, and one receipt for each call would fill the ensemble.
var books = perconn.NewMap(func(*zk.Conn) *shelf { return &shelf{byDir: map[string]*book{}} })

// shelf holds the books of one connection.
type shelf struct {
	mu    sync.Mutex
	byDir map[string]*book
}

func bookOf(conn *zk.Conn, dir string) *book {
	s := books.Of(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byDir[dir]
	if b == nil {
		b = &book{turn: make(chan struct{}, 1), path: path.Join(dir, prefix+rand.Text())}
		s.byDir[dir] = b
	}
	return b
}

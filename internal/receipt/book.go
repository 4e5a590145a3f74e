package receipt

import (
	"crypto/rand"
	"path"
	"runtime"
	"sync"
	"weak"

	"github.com/go-zookeeper/zk"
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
var (
	booksMu sync.Mutex
	books   = map[weak.Pointer[zk.Conn]]map[string]*book{}
)

func bookOf(conn *zk.Conn, dir string) *book {
	booksMu.Lock()
	defer booksMu.Unlock()
	w := weak.Make(conn)
	if books[w] == nil {
		books[w] = map[string]*book{}
		runtime.AddCleanup(conn, forget, w)
	}
	b := books[w][dir]
	if b == nil {
		b = &book{turn: make(chan struct{}, 1), path: path.Join(dir, prefix+rand.Text())}
		books[w][dir] = b
	}
	return b
}

func forget(w weak.Pointer[zk.Conn]) {
	booksMu.Lock()
	defer booksMu.Unlock()
	delete(books, w)
}

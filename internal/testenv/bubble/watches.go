package bubble

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/go-zookeeper/zk"
)

// Watches returns the number of channels that conn holds for watches that have not fired, for tests that
// no watch is leaked. The client library has no method for that. Watches may be called from any goroutine,
// also outside of bubbles.
func Watches(conn *zk.Conn) (n int) {
	fields := reflect.ValueOf(conn).Elem()
	lock := (*sync.Mutex)(unsafe.Pointer(fields.FieldByName("watchersLock").UnsafeAddr()))
	lock.Lock()
	defer lock.Unlock()
	for _, channels := range fields.FieldByName("watchers").Seq2() {
		n += channels.Len()
	}
	return n
}

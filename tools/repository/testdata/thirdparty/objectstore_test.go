package objectstore

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/storetest"
)

// bucket is an object storage in memory, the transport of an HTTP client.
type bucket struct {
	mu      sync.Mutex
	writes  int
	objects map[string]object // the objects by URL
}

type object struct {
	data []byte
	etag string
}

// newBucket returns a client of a new bucket.
func newBucket() *http.Client { return &http.Client{Transport: &bucket{objects: map[string]object{}}} }

// RoundTrip answers as Amazon S3 does: a write on the condition If-Match fails with 404 if the object
// does not exist.
func (b *bucket) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	o, exists := b.objects[r.URL.String()]
	status, expected := http.StatusOK, r.Header.Get("If-Match")
	switch {
	case r.Method == http.MethodGet && !exists, expected != "" && !exists:
		status = http.StatusNotFound
	case expected != "" && o.etag != expected, r.Header.Get("If-None-Match") == "*" && exists:
		status = http.StatusPreconditionFailed
	case r.Method == http.MethodPut:
		b.writes++
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		o = object{data, strconv.Itoa(b.writes)}
		b.objects[r.URL.String()] = o
	}
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status) + " " + http.StatusText(status),
		Header: http.Header{"Etag": {o.etag}}, Body: io.NopCloser(bytes.NewReader(o.data)), Request: r,
	}, nil
}

func objectBackend(testing.TB) *storetest.Backend {
	client := newBucket()
	return &storetest.Backend{
		New: func(t testing.TB) changefeed.Store {
			s, err := newObjectStore(client, "http://bucket/election", 50*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Lose: func(testing.TB) {
			b := client.Transport.(*bucket)
			b.mu.Lock()
			defer b.mu.Unlock()
			clear(b.objects)
		},
	}
}

// TestContract checks that the store satisfies the contract of stores.
func TestContract(t *testing.T) { storetest.Run(t, objectBackend, storetest.FakeTime()) }

// TestElection checks that elections on the store satisfy their contract.
func TestElection(t *testing.T) {
	storetest.RunElection(t, objectBackend, storetest.FakeTime())
}

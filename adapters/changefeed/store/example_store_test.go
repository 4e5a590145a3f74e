package store_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
			s, err := newObjectStore(client, "http://bucket/election", pollInterval)
			require.NoError(t, err)
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

// TestExample_StoreSatisfiesContract checks that the store of the example satisfies the contract of stores.
func TestExample_StoreSatisfiesContract(t *testing.T) {
	storetest.Run(t, objectBackend, storetest.FakeTime())
}

// TestExample_ElectionsSatisfyContract checks that elections on the store of the example satisfy their contract.
func TestExample_ElectionsSatisfyContract(t *testing.T) {
	storetest.RunElection(t, objectBackend, storetest.FakeTime())
}

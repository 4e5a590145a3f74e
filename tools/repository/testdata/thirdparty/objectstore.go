// Package objectstore is a store that is written outside of the repository. It is not changed when the API
// of the library changes, because other authors would have to change their stores as well.
package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// objectStore keeps the record in an object of a storage with conditional requests, such as Amazon S3.
// The version of the record is the ETag of the object.
type objectStore struct {
	client *http.Client
	url    string
	runner store.Runner
}

// newObjectStore returns a store that keeps its record at a URL, and reads it every interval.
func newObjectStore(client *http.Client, url string, interval time.Duration) (changefeed.Store, error) {
	if err := store.CheckText("URL", url, 1000); err != nil {
		return nil, err
	}
	s := &objectStore{client: client, url: url}
	s.runner = store.Runner{
		Feeds: store.NewFeeds(s.Read, nil, 0), Prefix: "object store: ", Suffix: " " + url,
		MeaningOf: func(error) error { return nil },
	}
	return store.Poll(s, interval)
}

func (s *objectStore) Start(ctx context.Context) error {
	_, err := s.Read(ctx)
	if errors.Is(err, changefeed.ErrNoRecord) {
		return nil
	}
	return err
}

func (s *objectStore) Create(ctx context.Context, blank changefeed.Record) error {
	return s.runner.Do(ctx, "create", func(ctx context.Context) error {
		_, err := s.request(ctx, http.MethodPut, blank, "If-None-Match", "*")
		if errors.Is(err, changefeed.ErrConflict) {
			return nil // the object exists already
		}
		return err
	})
}

func (s *objectStore) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return s.runner.Read(ctx, "write", func(ctx context.Context) (changefeed.Record, error) {
		return s.request(ctx, http.MethodPut, next, "If-Match", prev.Version)
	})
}

func (s *objectStore) Read(ctx context.Context) (changefeed.Record, error) {
	return s.runner.Read(ctx, "read", func(ctx context.Context) (changefeed.Record, error) {
		return s.request(ctx, http.MethodGet, changefeed.Record{}, "Accept", "application/json")
	})
}

func (s *objectStore) Close() error { return s.runner.Close() }

// request sends a request with a header, and returns the record that it has read or written.
func (s *objectStore) request(ctx context.Context, method string, r changefeed.Record, header, value string) (changefeed.Record, error) {
	var body io.Reader
	if method == http.MethodPut {
		data, err := store.Encode(r)
		if err != nil {
			return changefeed.Record{}, err
		}
		body = io.NopCloser(bytes.NewReader(data)) // net/http cannot rewind this body, so it does not send the write again
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url, body)
	if err != nil {
		return changefeed.Record{}, err
	}
	request.Header.Set(header, value)
	response, err := s.client.Do(request)
	if err != nil {
		return changefeed.Record{}, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return changefeed.Record{}, changefeed.ErrNoRecord
	case http.StatusPreconditionFailed:
		return changefeed.Record{}, changefeed.ErrConflict
	default:
		return changefeed.Record{}, fmt.Errorf("status %s", response.Status)
	}
	if method == http.MethodGet {
		data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		if err != nil {
			return changefeed.Record{}, err
		}
		if r, err = store.Decode(data); err != nil {
			return changefeed.Record{}, err
		}
	}
	r.Version = response.Header.Get("ETag")
	return r, nil
}

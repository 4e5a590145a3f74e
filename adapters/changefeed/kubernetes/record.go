package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

// Annotation is the annotation of a Lease that contains the record.
const Annotation = "go-leaderelection.github.io/record"

// fieldManager is the name of this package in metadata.managedFields.
const fieldManager = "go-leaderelection"

// version identifies a state of a Lease; its text is the Version of a record. It contains
// spec.leaseTransitions, because the fields of a record do not.
type version struct {
	uid, resourceVersion string
	transitions          int32
}

func (v version) String() string {
	return fmt.Sprintf("%s/%s/%d", v.uid, v.resourceVersion, v.transitions)
}

// parseVersion parses the text of a version. ok is false if text is not the text of a version.
func parseVersion(text string) (v version, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return v, false
	}
	n, err := strconv.ParseInt(parts[2], 10, 32)
	return version{parts[0], parts[1], int32(n)}, err == nil
}

// versionOf returns the version of a Lease.
func versionOf(l *coordination.Lease) version {
	v := version{uid: string(l.UID), resourceVersion: l.ResourceVersion}
	if n := l.Spec.LeaseTransitions; n != nil {
		v.transitions = *n
	}
	return v
}

// patch is a JSON merge patch of a Lease, or the body of a new one. Fields that are null are removed.
type patch struct {
	Metadata patchMetadata  `json:"metadata"`
	Spec     map[string]any `json:"spec"`
}

type patchMetadata struct {
	Name            string            `json:"name,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations"`
}

// newPatch returns the patch that replaces the state prev of a Lease by next. begins reports whether
// next is the first write of a leadership.
func newPatch(prev version, next changefeed.Record, begins bool, now time.Time) (patch, error) {
	data, err := store.Encode(next)
	if err != nil {
		return patch{}, err
	}
	p := patch{
		Metadata: patchMetadata{UID: prev.uid, ResourceVersion: prev.resourceVersion, Annotations: map[string]string{Annotation: string(data)}},
		Spec:     map[string]any{"holderIdentity": nil, "leaseDurationSeconds": nil, "renewTime": meta.NewMicroTime(now)},
	}
	if next.Leader != "" {
		p.Spec["holderIdentity"] = next.Leader
	}
	if next.TTL > 0 {
		seconds := next.TTL / time.Second
		if next.TTL%time.Second > 0 {
			seconds++
		}
		p.Spec["leaseDurationSeconds"] = min(seconds, math.MaxInt32)
	}
	if begins {
		p.Spec["acquireTime"] = p.Spec["renewTime"]
		p.Spec["leaseTransitions"] = min(int64(prev.transitions)+1, math.MaxInt32)
	}
	return p, nil
}

// errOtherHolder is the error for a Lease whose holderIdentity is not the leader in the record: another program, such
// as a candidate of client-go's election, has changed the Lease.
var errOtherHolder = errors.New("the holderIdentity is not the leader of the annotation " + Annotation + ", so another program, such as one with client-go's election, uses the Lease")

// decode returns the record in a Lease. If the Lease has no content, because a user has created it for
// WithoutCreate, the error is ErrNoRecord.
func decode(l *coordination.Lease) (changefeed.Record, error) {
	text, ok := l.Annotations[Annotation]
	switch {
	case !ok && l.Spec == (coordination.LeaseSpec{}):
		return changefeed.Record{}, changefeed.ErrNoRecord
	case !ok:
		return changefeed.Record{}, store.NotRecord(errors.New("the Lease has no annotation " + Annotation))
	}
	r, err := store.Decode([]byte(text))
	if err != nil {
		return changefeed.Record{}, err
	}
	holder := ""
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	if holder != r.Leader {
		return changefeed.Record{}, store.NotRecord(errOtherHolder)
	}
	r.Version = versionOf(l).String()
	return r, nil
}

// Create implements [changefeed.Store].
func (s *Store) Create(ctx context.Context, blank changefeed.Record) error {
	return s.runner.Do(ctx, "create "+s.lease(), func(ctx context.Context) error {
		if !s.withoutCreate {
			err := s.create(ctx, blank, s.client.Post())
			if !apierrors.IsAlreadyExists(err) {
				return explainNamespace(err)
			}
		}
		l, err := s.get(ctx)
		if err != nil {
			return err
		}
		if _, err = decode(l); !errors.Is(err, changefeed.ErrNoRecord) {
			return err
		}
		_, err = s.patch(ctx, versionOf(l), blank, blank.Leader != "")
		if apierrors.IsConflict(err) { // Another candidate has written its record in the meantime.
			err = nil
		}
		return err
	})
}

// create sends a request that creates the Lease with a record.
func (s *Store) create(ctx context.Context, blank changefeed.Record, request *rest.Request) error {
	p, err := newPatch(version{}, blank, blank.Leader != "", time.Now())
	if err != nil {
		return err
	}
	p.Metadata.Name = s.name
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = s.send(ctx, request.Param("fieldManager", fieldManager).Body(body))
	return err
}

// Heartbeat implements [changefeed.Store].
func (s *Store) Heartbeat(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
	return s.runner.Read(ctx, "write "+s.lease(), func(ctx context.Context) (changefeed.Record, error) {
		v, ok := parseVersion(prev.Version)
		begins := next.Leader != "" && next.Term != prev.Term
		for attempt := 1; ok; attempt++ {
			l, err := s.patch(ctx, v, next, begins)
			switch {
			case err == nil:
				return decode(l)
			case !apierrors.IsConflict(err):
				return changefeed.Record{}, err
			case attempt > maxRepeats:
				return changefeed.Record{}, changefeed.ErrConflict
			}
			if v, err = s.resolveConflict(ctx, v.uid, prev); err != nil {
				return changefeed.Record{}, err
			}
		}
		_, err := s.resolveConflict(ctx, "", prev)
		return changefeed.Record{}, err
	})
}

// maxRepeats is how often a heartbeat is repeated because other programs have changed the Lease's metadata.
const maxRepeats = 3

// patch sends a patch that replaces the state prev of the Lease by next.
func (s *Store) patch(ctx context.Context, prev version, next changefeed.Record, begins bool) (*coordination.Lease, error) {
	p, err := newPatch(prev, next, begins, time.Now())
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return s.send(ctx, s.client.Patch(types.MergePatchType).Name(s.name).Param("fieldManager", fieldManager).Body(body))
}

// resolveConflict reads the Lease after a conflict. If the Lease still has the given uid and contains the record prev,
// another program has changed only its metadata, and resolveConflict returns the new version. Otherwise it returns
// ErrConflict, or ErrNoRecord if the record does not exist.
func (s *Store) resolveConflict(ctx context.Context, uid string, prev changefeed.Record) (version, error) {
	var r changefeed.Record
	l, err := s.get(ctx)
	if err == nil {
		r, err = decode(l)
	}
	r.Version, r.Time = prev.Version, prev.Time
	switch {
	case apierrors.IsNotFound(err), errors.Is(err, changefeed.ErrNoRecord):
		return version{}, changefeed.ErrNoRecord
	case errors.Is(err, changefeed.ErrUnsuitable):
		return version{}, err
	case err == nil && string(l.UID) == uid && r == prev:
		return versionOf(l), nil
	}
	return version{}, changefeed.ErrConflict
}

// Read implements [changefeed.Store]. The API server reads the newest state from its storage.
func (s *Store) Read(ctx context.Context) (changefeed.Record, error) {
	return s.runner.Read(ctx, "read "+s.lease(), func(ctx context.Context) (changefeed.Record, error) {
		l, err := s.get(ctx)
		if err != nil {
			return changefeed.Record{}, err
		}
		return decode(l)
	})
}

func (s *Store) get(ctx context.Context) (*coordination.Lease, error) {
	return s.send(ctx, s.client.Get().Name(s.name))
}

// send sends a request, and returns the Lease of the answer. If the API server has not answered for some
// time, send closes the connections: they may have failed without notice, and the client would use them
// until its own checks detect that after 45 seconds.
func (s *Store) send(ctx context.Context, request *rest.Request) (*coordination.Lease, error) {
	l := &coordination.Lease{}
	err := request.Namespace(s.namespace).Resource("leases").MaxRetries(0).Do(ctx).Into(l)
	switch {
	case err == nil || apierrors.ReasonForError(err) != meta.StatusReasonUnknown:
		s.answered.Store(time.Now().UnixNano())
	case errors.Is(err, context.DeadlineExceeded) && time.Since(time.Unix(0, s.answered.Load())) > maxSilence:
		s.closeConnections()
	}
	return l, err
}

// maxSilence is the time without an answer of the API server after which the store replaces its connections.
const maxSilence = 3 * time.Second

// lease returns the name of the Lease for messages.
func (s *Store) lease() string { return "Lease " + s.namespace + "/" + s.name }

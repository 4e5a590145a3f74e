package kubernetes

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// Start implements [changefeed.Store]. It checks the namespace, the Lease and the permissions, by
// requests with dryRun and by a watch that it closes.
func (s *Store) Start(ctx context.Context) error {
	return s.runner.Do(ctx, "check "+s.lease(), func(ctx context.Context) error {
		probe := changefeed.Record{Epoch: "probe", Seq: 1}
		if !s.withoutCreate {
			err := s.create(ctx, probe, s.client.Post().Param("dryRun", meta.DryRunAll))
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return explainNamespace(err)
			}
		}
		l, err := s.get(ctx)
		switch {
		case apierrors.IsNotFound(err) && s.withoutCreate:
			return s.runner.Unsuitable("%s does not exist, and the store is configured not to create it: create it", s.lease())
		case apierrors.IsNotFound(err):
		case err != nil:
			return err
		default:
			if _, err := decode(l); err != nil && !errors.Is(err, changefeed.ErrNoRecord) {
				return err
			}
		}
		if err := s.checkWritePermission(ctx); err != nil {
			return err
		}
		w, err := s.openWatch(ctx)
		if err == nil {
			w.Stop()
		}
		return err
	})
}

// checkWritePermission checks that the user may write, by a patch with a version that no Lease has: if the user may,
// the API server answers that the version does not match, or that the Lease does not exist.
func (s *Store) checkWritePermission(ctx context.Context) error {
	_, err := s.patch(ctx, version{uid: "none", resourceVersion: "1"}, changefeed.Record{Epoch: "probe"}, false)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// explainNamespace returns an error with advice if err, of a request to create a Lease, means that the namespace does
// not exist. It returns other errors unchanged.
func explainNamespace(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the namespace does not exist: create it (%v)", changefeed.ErrUnsuitable, err)
	}
	return err
}

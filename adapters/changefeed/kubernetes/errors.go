package kubernetes

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

// adviceByStatus contains advice on how to resolve permanent failures. The keys are the status codes of responses
// that mean that nothing was written.
var adviceByStatus = map[int32]string{
	http.StatusBadRequest:            "the API server rejects the request",
	http.StatusMethodNotAllowed:      "the API server has no Leases of coordination.k8s.io/v1",
	http.StatusUnsupportedMediaType:  "the API server rejects the patch",
	http.StatusRequestEntityTooLarge: "use shorter IDs",
	http.StatusUnprocessableEntity:   "the API server rejects the Lease",
}

// meaningOf returns the error of package changefeed that corresponds to an error of the client, or
// nil if there is none.
func meaningOf(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	switch code := status.Status().Code; code {
	case http.StatusNotFound:
		return changefeed.ErrNoRecord
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w: the documentation of the package lists the verbs that the role needs", changefeed.ErrUnsuitable, leaderelection.ErrPermission)
	default:
		if advice, ok := adviceByStatus[code]; ok {
			return fmt.Errorf("%w: %s", changefeed.ErrUnsuitable, advice)
		}
	}
	return nil
}

package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	jsonType   = "application/json"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
)

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// leases implements the part of a Kubernetes API server that leader election needs: leases in memory,
// with optimistic concurrency control.
type leases struct {
	http.ServeMux
	mu      sync.Mutex
	byName  map[string]*coordination.Lease
	version int
}

func newLeases() *leases {
	l := &leases{byName: make(map[string]*coordination.Lease)}
	l.HandleFunc("GET "+leasesPath+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		name := r.PathValue("name")
		if l.byName[name] == nil {
			writeError(w, apierrors.NewNotFound(leaseResource, name))
			return
		}
		writeObject(w, http.StatusOK, l.byName[name])
	})
	l.HandleFunc("POST "+leasesPath, l.write)
	l.HandleFunc("PUT "+leasesPath+"/{name}", l.write)
	return l
}

// write handles a request that creates a lease, or updates it if the client has read its current
// version.
func (l *leases) write(w http.ResponseWriter, r *http.Request) {
	lease := new(coordination.Lease)
	if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
		writeError(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	status := http.StatusOK
	switch old := l.byName[lease.Name]; {
	case r.Method == http.MethodPost && old != nil:
		writeError(w, apierrors.NewAlreadyExists(leaseResource, lease.Name))
		return
	case r.Method == http.MethodPost:
		status = http.StatusCreated
	case old == nil:
		writeError(w, apierrors.NewNotFound(leaseResource, lease.Name))
		return
	case lease.ResourceVersion != old.ResourceVersion:
		writeError(w, apierrors.NewConflict(leaseResource, lease.Name, nil))
		return
	}
	l.version++
	lease.Namespace, lease.ResourceVersion = "default", strconv.Itoa(l.version)
	l.byName[lease.Name] = lease
	writeObject(w, status, lease)
}

func writeError(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	writeObject(w, int(status.Code), &status)
}

func writeObject(w http.ResponseWriter, code int, object any) {
	if lease, ok := object.(*coordination.Lease); ok {
		lease.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // ignore the error, because the client notices an incomplete reply
}

//go:build !no_kubernetes

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
)

func init() {
	drivers["kubernetes"] = openKubernetes
	driverLogs = append(driverLogs, func(log *slog.Logger) { klog.SetSlogLogger(slog.New(debugHandler{log.Handler()})) })
}

// debugHandler passes all messages to its Handler with level Debug.
type debugHandler struct{ slog.Handler }

func (h debugHandler) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h debugHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, slog.LevelDebug) { // klog does not call Enabled before it logs an error.
		return nil
	}
	r.Level, r.Message = slog.LevelDebug, "kubernetes: "+r.Message
	return h.Handler.Handle(ctx, r)
}

func (h debugHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugHandler{h.Handler.WithAttrs(attrs)}
}

func (h debugHandler) WithGroup(name string) slog.Handler {
	return debugHandler{h.Handler.WithGroup(name)}
}

// openKubernetes checks an address and returns the function that opens it. The host of the address is the namespace of
// the Lease.
func openKubernetes(a address) (connector, error) {
	file, name := a.query.Get("kubeconfig"), a.query.Get("context")
	a.query.Del("kubeconfig")
	a.query.Del("context")
	if err := a.rejectParameters(); err != nil {
		return nil, err
	}
	switch {
	case a.url.User != nil || a.url.Path != "" || a.url.Port() != "":
		return nil, errors.New("expected kubernetes://namespace; the kubeconfig, or the service account of the pod, determines the API server and the credentials")
	case a.config.TLS != nil:
		return nil, errors.New("the kubeconfig, or the service account of the pod, determines the TLS configuration")
	case len(a.risks) > 0:
		return nil, errors.New("stores on Kubernetes have no risks to accept")
	case name != "" && file == "":
		return nil, errors.New("the parameter context needs the parameter kubeconfig")
	}
	open := func(config *rest.Config) (changefeed.Store, error) {
		return kubernetes.NewStore(config, a.url.Host, a.config.Election)
	}
	if s, err := open(&rest.Config{Host: "http://localhost"}); err == nil {
		// The store was created only to check the names.
		_ = s.Close()
	} else {
		return nil, err
	}
	return func(context.Context) (*Opener, error) {
		config, err := loadConfig(file, name)
		if err != nil {
			return nil, err
		}
		return newOpener(func() (changefeed.Store, error) { return open(config) }, func() error { return nil }), nil
	}, nil
}

// loadConfig returns the configuration that the context with the given name has in a kubeconfig file. If file is empty,
// it returns the configuration of the pod's service account.
func loadConfig(file, name string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = fmt.Errorf("%w: this is not a pod of a cluster: name a file by the parameter kubeconfig (%w)", leaderelection.ErrInvalid, err)
		}
		return config, err
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
}

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/kubernetes"
)

const manifests = "../../deploy/kubernetes"

// readObjects returns the Kubernetes objects in a YAML file.
func readObjects(t testing.TB, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var all []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, file)
		all = append(all, o)
	}
}

// TestManifests_KustomizationsListAllFiles checks that each kustomization lists all files of its directory.
func TestManifests_KustomizationsListAllFiles(t *testing.T) {
	kustomizations, err := filepath.Glob(manifests + "/*/kustomization.yaml")
	require.NoError(t, err)
	require.Len(t, kustomizations, 3)
	for _, file := range kustomizations {
		k := readObjects(t, file)[0]
		listed, _, err := unstructured.NestedStringSlice(k.Object, "resources")
		require.NoError(t, err)
		patches, _, err := unstructured.NestedSlice(k.Object, "patches")
		require.NoError(t, err)
		for _, p := range patches {
			listed = append(listed, p.(map[string]any)["path"].(string))
		}
		var want []string
		files, err := filepath.Glob(filepath.Dir(file) + "/*.yaml")
		require.NoError(t, err)
		for _, f := range files {
			if base := filepath.Base(f); base != "kustomization.yaml" {
				want = append(want, base)
			}
		}
		listed = slices.DeleteFunc(listed, func(name string) bool {
			_, err := os.Stat(filepath.Join(filepath.Dir(file), name))
			require.NoError(t, err)
			return !strings.HasSuffix(name, ".yaml")
		})
		require.ElementsMatch(t, want, listed, file)
	}
}

// sidecarDeployment returns the Deployment of the base with the patch that makes elector a sidecar, as kustomize
// would apply it.
func sidecarDeployment(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	base, err := readObjects(t, manifests+"/base/deployment.yaml")[0].MarshalJSON()
	require.NoError(t, err)
	patch, err := readObjects(t, manifests+"/sidecar/sidecar.yaml")[0].MarshalJSON()
	require.NoError(t, err)
	merged, err := strategicpatch.StrategicMergePatch(base, patch, appsv1.Deployment{})
	require.NoError(t, err)
	o := &unstructured.Unstructured{}
	require.NoError(t, o.UnmarshalJSON(merged))
	return o
}

// TestManifests_SidecarReplacesCommand checks that the patch that makes elector a sidecar replaces the command of the
// base in the container of the program.
func TestManifests_SidecarReplacesCommand(t *testing.T) {
	containers, _, err := unstructured.NestedSlice(sidecarDeployment(t).Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	require.Len(t, containers, 1)
	program := containers[0].(map[string]any)
	require.Equal(t, []any{"/usr/local/bin/report"}, program["command"])
	require.Empty(t, program["args"])
	require.Nil(t, program["readinessProbe"])
	require.NotNil(t, program["securityContext"])
}

// resourceName returns the name of the API resource for a kind of objects.
func resourceName(kind string) string {
	if kind == "NetworkPolicy" {
		return "networkpolicies"
	}
	return strings.ToLower(kind) + "s"
}

// apply applies an object, and requires that all fields are valid. With dryRun the server stores nothing.
func (s *apiServer) apply(t testing.TB, o *unstructured.Unstructured, dryRun bool) {
	t.Helper()
	version, err := schema.ParseGroupVersion(o.GetAPIVersion())
	require.NoError(t, err)
	body, err := o.MarshalJSON()
	require.NoError(t, err)
	path := "/apis/" + o.GetAPIVersion()
	if version.Group == "" {
		path = "/api/v1"
	}
	scope := []string{path, "namespaces", "default"}
	if strings.HasPrefix(o.GetKind(), "Cluster") {
		scope = scope[:1]
	}
	request := s.client(adminToken, version).Patch(types.ApplyPatchType).
		AbsPath(append(scope, resourceName(o.GetKind()), o.GetName())...).
		Param("fieldManager", "test").Param("fieldValidation", "Strict")
	if dryRun {
		request = request.Param("dryRun", "All")
	}
	require.NoError(t, request.Body(body).Do(context.Background()).Error(), "%s %s", o.GetKind(), o.GetName())
}

// TestManifests_AreAcceptedByAPIServer checks that the API server accepts each manifest, in a dry run with strict
// validation of the fields.
func TestManifests_AreAcceptedByAPIServer(t *testing.T) {
	s := startAPIServer(t)
	kinds := map[string]bool{}
	for _, file := range manifestFiles(t) {
		for _, o := range readObjects(t, file) {
			s.apply(t, o, true)
			kinds[o.GetKind()] = true
		}
	}
	require.Len(t, kinds, 8, kinds)
	s.apply(t, sidecarDeployment(t), true)
}

// manifestFiles returns the manifests that contain complete objects, not patches.
func manifestFiles(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob(manifests + "/[bc]*/*.yaml")
	require.NoError(t, err)
	all = slices.DeleteFunc(all, func(file string) bool { return filepath.Base(file) == "kustomization.yaml" })
	require.NotEmpty(t, all)
	return all
}

// TestManifests_ContainOnlyKnownFields checks without an API server that a manifest contains only fields that its
// kind has.
func TestManifests_ContainOnlyKnownFields(t *testing.T) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, file := range manifestFiles(t) {
		for _, o := range readObjects(t, file) {
			text, err := o.MarshalJSON()
			require.NoError(t, err)
			_, _, err = decoder.Decode(text, nil, nil)
			require.NoError(t, err, file)
		}
	}
}

// TestManifests_ControllerHasSameRightsAsBase checks that the Role of the controller grants the same rights as the
// Role of the base, which TestManifests_RoleGrantsOnlyNeededVerbs tests on an API server.
func TestManifests_ControllerHasSameRightsAsBase(t *testing.T) {
	rules := func(directory, name string) []rbac.PolicyRule {
		for _, o := range readObjects(t, manifests+"/"+directory+"/rbac.yaml") {
			if o.GetKind() != "Role" {
				continue
			}
			var role rbac.Role
			text, err := o.MarshalJSON()
			require.NoError(t, err)
			require.NoError(t, yaml.Unmarshal(text, &role))
			require.Equal(t, []string{name}, role.Rules[0].ResourceNames)
			role.Rules[0].ResourceNames = nil
			return role.Rules
		}
		return nil
	}
	want := rules("base", "report")
	require.NotEmpty(t, want)
	require.Equal(t, want, rules("controller", "labeler"))
}

// TestManifests_RoleGrantsOnlyNeededVerbs checks that an election works with the verbs that the Role grants, and
// fails without any one of them.
func TestManifests_RoleGrantsOnlyNeededVerbs(t *testing.T) {
	s := startAPIServer(t)
	var role *unstructured.Unstructured
	for _, o := range readObjects(t, manifests+"/base/rbac.yaml") {
		s.apply(t, o, false)
		if o.GetKind() == "Role" {
			role = o
		}
	}
	elect := func() error {
		st, err := kubernetes.NewStore(clientConfig(s.addr(), reportToken), "default", "report")
		require.NoError(t, err)
		defer st.Close()
		e, err := changefeed.NewElection(st, changefeed.WithID("one"))
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- e.ElectLeader() }()
		for status := range e.Status() {
			if status.Role == leaderelection.Leader {
				break
			}
		}
		require.NoError(t, e.Resign())
		return <-ended
	}
	require.NoError(t, elect())
	require.ErrorIs(t, s.newStore(t, clientConfig(s.addr(), reportToken), "another").Start(t.Context()), leaderelection.ErrPermission)

	var complete rbac.Role
	text, err := role.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &complete))
	removed := 0
	for i, rule := range complete.Rules {
		for _, verb := range rule.Verbs {
			less := complete.DeepCopy()
			less.Rules[i].Verbs = slices.DeleteFunc(less.Rules[i].Verbs, func(v string) bool { return v == verb })
			if len(less.Rules[i].Verbs) == 0 {
				less.Rules = slices.Delete(less.Rules, i, i+1)
			}
			s.putRole(t, less)
			require.Eventually(t, func() bool { return errors.Is(elect(), leaderelection.ErrPermission) }, patience, tick, "without %s", verb)
			removed++
		}
	}
	require.Equal(t, 4, removed)
	s.putRole(t, &complete)
	require.Eventually(t, func() bool { return elect() == nil }, patience, tick)
}

// putRole replaces a role.
func (s *apiServer) putRole(t testing.TB, role *rbac.Role) {
	t.Helper()
	require.NoError(t, s.client(adminToken, rbac.SchemeGroupVersion).Put().Namespace("default").Resource("roles").Name(role.Name).
		Body(role).Do(context.Background()).Error())
}

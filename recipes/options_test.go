package recipes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/recipes"
	"github.com/go-leaderelection/leaderelection/recipes/barrier"
	"github.com/go-leaderelection/leaderelection/recipes/cache"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
	"github.com/go-leaderelection/leaderelection/recipes/group"
	"github.com/go-leaderelection/leaderelection/recipes/lock"
	"github.com/go-leaderelection/leaderelection/recipes/queue"
	"github.com/go-leaderelection/leaderelection/recipes/shard"
	"github.com/go-leaderelection/leaderelection/recipes/value"
)

// An option of package recipes is an option of every recipe.
var (
	_ barrier.Option      = recipes.Option{}
	_ cache.Option        = recipes.Option{}
	_ value.CounterOption = recipes.Option{}
	_ discovery.Option    = recipes.Option{}
	_ group.Option        = recipes.Option{}
	_ lock.Option         = recipes.Option{}
	_ queue.Option        = recipes.Option{}
	_ shard.Option        = recipes.Option{}
	_ value.Option        = recipes.Option{}
)

// TestOptions_DoNotFitOtherRecipes checks that an option of one recipe does not implement the option interface of
// another recipe, so that a program that confuses them does not compile.
func TestOptions_DoNotFitOtherRecipes(t *testing.T) {
	_, ok := any(lock.WithName("a")).(queue.Option)
	require.False(t, ok)
	_, ok = any(queue.WithMaxItems(1)).(lock.Option)
	require.False(t, ok)
	_, ok = any(cache.WithoutData()).(value.CounterOption)
	require.False(t, ok)
}

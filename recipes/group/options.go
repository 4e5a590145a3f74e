package group

import "github.com/go-leaderelection/leaderelection/internal/zk/recipe"

// Option is an option of a [Group], a [Persistent] or a [Partitioner]. Every [recipes.Option] is one.
type Option interface{ ApplyGroup(*recipe.Setup) }

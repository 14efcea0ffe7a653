import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    // Processes that share nothing: every test file has its own HOME, folders and port 0.
    pool: "forks",
    maxWorkers: 2,
    minWorkers: 1,
    reporters: ["default"],
    projects: [
      {
        extends: true,
        test: { name: "unit", include: ["test/services/**/*.test.ts", "test/layers/**/*.test.ts", "test/*.test.ts"] }
      },
      {
        extends: true,
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          // A real omp takes seconds to start.
          testTimeout: 120_000,
          hookTimeout: 120_000
        }
      }
    ]
  }
})

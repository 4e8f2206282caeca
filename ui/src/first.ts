// What the first screen is made of. build.mjs adds this file to every chunk, so that all of it lands in one file, which every other
// chunk shares; without it each combination of screens would make a file of its own.
import "./parts/basic.tsx";
import "./screens/frame.tsx";
import "./screens/overview.tsx";
import "./screens/runs.tsx";
